"""Many units at once: a grid of them, evaluated in several processes, told as tables and plots."""

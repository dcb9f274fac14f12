"""The simulator: the interpreter of step programs, and its watchers."""

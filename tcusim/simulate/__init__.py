"""The simulator: the interpreter of step programs, and what watches it."""

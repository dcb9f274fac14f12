"""The stepper: recorded runs of programs, step by step, and their views."""

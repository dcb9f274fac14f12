"""The screen of `tcusim step`, on Textual: a program to step through, by keys alone."""

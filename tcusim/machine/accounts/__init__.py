"""Accounts of the summation of one output: as data, text, a page and a drawing."""

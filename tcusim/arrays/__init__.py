"""Sums, scans and products of arrays: from a request by way of a plan to launches."""

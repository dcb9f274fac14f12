"""The command `tcusim`."""

"""`python -m tcusim` is the command `tcusim`."""

from tcusim.cli.main import main

main()

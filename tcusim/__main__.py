"""`python -m tcusim` is the command `tcusim`."""

from tcusim.cli.main import main

# Click would call the program "python -m tcusim" in its usage lines; it is one command.
main(prog_name="tcusim")

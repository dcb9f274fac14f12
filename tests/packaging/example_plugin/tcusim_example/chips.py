"""A unit with its machine, from a TOML file that lies beside this module."""

from pathlib import Path

from tcusim.machine import read_unit

CHIP = read_unit(Path(__file__).with_name("example_chip.toml"))

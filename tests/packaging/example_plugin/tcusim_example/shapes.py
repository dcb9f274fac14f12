"""A tile that no GPU has, as a shape for tcusim."""

from tcusim.machine.shapes import MmaShape

SHAPES = [MmaShape(48, 24, 12, source="[EXAMPLE]", title="an example of a virtual shape")]

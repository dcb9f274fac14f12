"""Watch a program run, step after step: what each step reads and writes, as plain arrays.

`frames` yields one `Frame` for each step of one warp; `tcusim.stepper.terminal` shows them. A
viewer holds no semantics: all values come from the interpreter.
"""

from tcusim.stepper.frames import Frame, Tile, default_inputs, frames

__all__ = ["Frame", "Tile", "default_inputs", "frames"]

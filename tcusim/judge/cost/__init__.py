"""What a program costs on a unit: its work, counted, and the time that follows from figures.

`tcusim.cost` predicts. `work` follows a block through its steps, `lanes` counts what one access
takes, `occupancy` how many blocks a core holds, `model` joins them; `fitted` has the six numbers
that no figure of a machine tells.
"""

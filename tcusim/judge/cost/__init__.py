"""The cost of a program on a unit: its counted work, and the time predicted from figures.

`tcusim.cost` predicts. `work` follows a block through its steps, `lanes` counts what one access
takes, `occupancy` how many blocks a core holds, `model` joins them; `fitted` has the six numbers
that no figure of a machine tells.
"""

"""Is it right, how precise, and how fast: of a unit, of a backend, of many units.

The packages, in the order of imports: `accuracy` and `cost` judge one rule and one program,
`correctness` a tile and a backend, `verdict` a unit, and `explore` a grid of units.
"""

"""The rules behind `tcusim.verify`: each a function that yields a `Finding` for each violation.

`sites` says where a step stands, and `regions` which elements a view touches; every other module
holds the checks of one subject. None of them imports `verifier`, which lists them in order.
"""

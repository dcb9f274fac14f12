"""The rules behind `tcusim.verify`: each a function that yields a `Finding` for each violation.

`sites` locates steps and `regions` lists the elements that a view touches; every other module
contains the checks of one subject. `verifier` lists the checks in order; no module imports it.
"""

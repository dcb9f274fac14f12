"""The algorithms by name, and `build`, which makes a step program of one."""

# Importing these fills the registry.
from tcusim.algorithms import (  # noqa: F401
    grid,
    paper,
    product,
    reduce,
    scan,
    scan_matmul,
)
from tcusim.algorithms.builder import Level
from tcusim.algorithms.options import Option, options_of
from tcusim.algorithms.registry import (
    Algorithm,
    algorithm,
    algorithm_of,
    algorithms,
    build,
    register_algorithm,
    segmented_algorithms,
)

__all__ = [
    "Algorithm",
    "Level",
    "Option",
    "algorithm",
    "algorithm_of",
    "algorithms",
    "build",
    "options_of",
    "register_algorithm",
    "segmented_algorithms",
]

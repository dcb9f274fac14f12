"""The algorithms by name, and `build`, which makes a step program of one."""

from tcusim.algorithms.registry import (
    Algorithm,
    algorithm_of,
    algorithms,
    build,
    register_algorithm,
    segmented_algorithms,
)

__all__ = [
    "Algorithm",
    "algorithm_of",
    "algorithms",
    "build",
    "register_algorithm",
    "segmented_algorithms",
]

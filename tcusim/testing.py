"""Compare backends bit for bit, in the tests of tcusim and of those who extend it."""

from tcusim.judge.correctness.testing import *  # noqa: F403
from tcusim.judge.correctness.testing import __all__ as __all__

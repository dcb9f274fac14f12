"""Compare backends bit for bit, in the tests of tcusim and of those who extend it."""

from tcusim.check.testing import *  # noqa: F403
from tcusim.check.testing import __all__ as __all__

"""Reductions and scans on tensor cores: step programs, and a simulator exact to the bit.

`import tcusim` needs NumPy alone. The pages under docs/ begin with the idea; `tcusim.build` and
`tcusim.listing` show an algorithm, `tcusim.interpret` runs it step by step, and
`tcusim.segmented_sum`, `tcusim.matmul` and their kin just compute.
"""

from tcusim.algorithms import Algorithm, algorithm_of, build, register_algorithm
from tcusim.arrays.functions import (
    cumsum,
    matmul,
    matvec,
    segmented_cumsum,
    segmented_sum,
    sum,
)
from tcusim.arrays.plans import Plan, ProductPlan, plan, plan_product
from tcusim.backends import register_backend, run
from tcusim.check.report import ShapeReport
from tcusim.check.validation import validate_shape
from tcusim.errors import (
    AgreementError,
    BackendUnavailable,
    InputError,
    TcusimError,
    UnknownName,
    Unsupported,
    VerifyError,
)
from tcusim.machine import mma, register_arch
from tcusim.machine.shapes import MmaShape, register_shape, shape_of
from tcusim.program.checks.verifier import verify
from tcusim.program.grammar import Program
from tcusim.program.printer import listing
from tcusim.simulate import backend as _backend  # noqa: F401 - it registers the simulator
from tcusim.simulate.interpreter import Event, interpret

__all__ = [
    "AgreementError",
    "Algorithm",
    "BackendUnavailable",
    "Event",
    "InputError",
    "MmaShape",
    "Plan",
    "ProductPlan",
    "Program",
    "ShapeReport",
    "TcusimError",
    "UnknownName",
    "Unsupported",
    "VerifyError",
    "algorithm_of",
    "build",
    "cumsum",
    "interpret",
    "listing",
    "matmul",
    "matvec",
    "mma",
    "plan",
    "plan_product",
    "register_algorithm",
    "register_arch",
    "register_backend",
    "register_shape",
    "run",
    "segmented_cumsum",
    "segmented_sum",
    "shape_of",
    "sum",
    "validate_shape",
    "verify",
]

__version__ = "0.1.0"


def __dir__() -> list[str]:
    """Return what completion offers: the names above, and no packages, which are imported."""
    return [*__all__, "__version__"]

"""Reductions and scans on tensor cores: step programs, and a simulator exact to the bit.

`import tcusim` needs NumPy alone. The pages under docs/ begin with the idea; `tcusim.build` and
`tcusim.listing` show an algorithm, `tcusim.interpret` runs it step by step, and
`tcusim.segmented_sum`, `tcusim.matmul` and their kin just compute.
"""

from tcusim.algorithms import Algorithm, algorithm_of, build, register_algorithm
from tcusim.api import cumsum, segmented_cumsum, segmented_sum, sum
from tcusim.backends import register_backend, run
from tcusim.errors import (
    AgreementError,
    BackendUnavailable,
    InputError,
    TcusimError,
    UnknownName,
    Unsupported,
    VerifyError,
)
from tcusim.interpret import Event, interpret
from tcusim.ir import Program
from tcusim.listing import listing
from tcusim.numerics import mma, register_unit
from tcusim.plan import Plan, plan
from tcusim.product_plan import ProductPlan, plan_product
from tcusim.products import matmul, matvec
from tcusim.shapes import MmaShape, register_shape, shape_of
from tcusim.validate import validate_shape
from tcusim.validate_report import ShapeReport
from tcusim.verify import verify

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
    "register_backend",
    "register_shape",
    "register_unit",
    "run",
    "segmented_cumsum",
    "segmented_sum",
    "shape_of",
    "sum",
    "validate_shape",
    "verify",
]

__version__ = "0.1.0"

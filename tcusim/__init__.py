"""Reductions and scans on tensor cores: step programs, and a simulator exact to the bit.

`import tcusim` needs NumPy alone. The pages under docs/ begin with the idea; `tcusim.build` and
`tcusim.listing` show an algorithm, `tcusim.interpret` runs it step by step, `tcusim.trace` records
the run, `tcusim.explain` shows how one output is summed, and `tcusim.segmented_sum`,
`tcusim.matmul` and their kin just compute.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tcusim.algorithms import Algorithm, algorithm_of, build, register_algorithm
from tcusim.arrays.functions import (
    cumsum,
    cumulative_sum,
    matmul,
    matvec,
    segmented_cumsum,
    segmented_sum,
    sum,
)
from tcusim.arrays.plan_functions import Plan, ProductPlan, plan, plan_product
from tcusim.arrays.segments import Segments
from tcusim.backends import register_backend, run
from tcusim.call_options import Options, options
from tcusim.errors import (
    AgreementError,
    BackendUnavailable,
    InputError,
    TcusimError,
    UnknownName,
    Unsupported,
    VerifyError,
)
from tcusim.machine import Figure, Unit, mma, read_unit, register_arch, register_unit, unit_of
from tcusim.machine.shapes import MmaShape, register_shape, shape_of
from tcusim.program.checks.verifier import verify
from tcusim.program.grammar import Program
from tcusim.program.printer import listing
from tcusim.simulate import backend as _backend  # noqa: F401 - it registers the simulator
from tcusim.simulate.interpreter import Event, interpret

if TYPE_CHECKING:
    from tcusim.arrays.partial import carries, combine, cut_size, partials
    from tcusim.arrays.per_segment import segmented_max, segmented_mean, segmented_min
    from tcusim.judge.accuracy.summary import Accuracy, accuracy_of
    from tcusim.judge.correctness.golden import GoldenVectors, golden_header, golden_vectors
    from tcusim.judge.correctness.shape_report import ShapeReport
    from tcusim.judge.correctness.validation import validate_shape
    from tcusim.judge.cost.predicted import Cost, cost
    from tcusim.judge.explore.axes import Grid
    from tcusim.judge.explore.grid import explore
    from tcusim.judge.explore.results import Exploration
    from tcusim.judge.verdict.validate import Verdict, validate
    from tcusim.machine.accounts.explanation import Explanation, explain
    from tcusim.machine.gemm_orders import (
        GemmMatches,
        GemmOrder,
        explain_matmul,
        gemm_orders,
        predict_matmul,
    )
    from tcusim.machine.layouts.fragment_layout import Layout, layout
    from tcusim.machine.probing import probe_unit
    from tcusim.stepper.trace import Trace, trace

__all__ = [
    "Accuracy",
    "AgreementError",
    "Algorithm",
    "BackendUnavailable",
    "Cost",
    "Event",
    "Explanation",
    "Exploration",
    "Figure",
    "GemmMatches",
    "GemmOrder",
    "GoldenVectors",
    "Grid",
    "InputError",
    "Layout",
    "MmaShape",
    "Options",
    "Plan",
    "ProductPlan",
    "Program",
    "Segments",
    "ShapeReport",
    "TcusimError",
    "Trace",
    "Unit",
    "UnknownName",
    "Unsupported",
    "Verdict",
    "VerifyError",
    "accuracy_of",
    "algorithm_of",
    "build",
    "carries",
    "combine",
    "cost",
    "cumsum",
    "cumulative_sum",
    "cut_size",
    "explain",
    "explain_matmul",
    "explore",
    "gemm_orders",
    "golden_header",
    "golden_vectors",
    "interpret",
    "layout",
    "listing",
    "matmul",
    "matvec",
    "mma",
    "options",
    "partials",
    "plan",
    "plan_product",
    "predict_matmul",
    "probe_unit",
    "read_unit",
    "register_algorithm",
    "register_arch",
    "register_backend",
    "register_shape",
    "register_unit",
    "run",
    "segmented_cumsum",
    "segmented_max",
    "segmented_mean",
    "segmented_min",
    "segmented_sum",
    "shape_of",
    "sum",
    "trace",
    "unit_of",
    "validate",
    "validate_shape",
    "verify",
]

__version__ = "0.1.0"


# Modules that predict, validate, explain, trace or show layouts are imported on first use.
_LATER = {
    "Cost": "tcusim.judge.cost.predicted",
    "Accuracy": "tcusim.judge.accuracy.summary",
    "Explanation": "tcusim.machine.accounts.explanation",
    "GemmMatches": "tcusim.machine.gemm_orders",
    "GemmOrder": "tcusim.machine.gemm_orders",
    "GoldenVectors": "tcusim.judge.correctness.golden",
    "Layout": "tcusim.machine.layouts.fragment_layout",
    "ShapeReport": "tcusim.judge.correctness.shape_report",
    "Trace": "tcusim.stepper.trace",
    "Exploration": "tcusim.judge.explore.results",
    "Grid": "tcusim.judge.explore.axes",
    "Verdict": "tcusim.judge.verdict.validate",
    "carries": "tcusim.arrays.partial",
    "combine": "tcusim.arrays.partial",
    "cost": "tcusim.judge.cost.predicted",
    "cut_size": "tcusim.arrays.partial",
    "accuracy_of": "tcusim.judge.accuracy.summary",
    "explain": "tcusim.machine.accounts.explanation",
    "explain_matmul": "tcusim.machine.gemm_orders",
    "explore": "tcusim.judge.explore.grid",
    "gemm_orders": "tcusim.machine.gemm_orders",
    "golden_header": "tcusim.judge.correctness.golden",
    "golden_vectors": "tcusim.judge.correctness.golden",
    "layout": "tcusim.machine.layouts.fragment_layout",
    "partials": "tcusim.arrays.partial",
    "predict_matmul": "tcusim.machine.gemm_orders",
    "probe_unit": "tcusim.machine.probing",
    "segmented_max": "tcusim.arrays.per_segment",
    "segmented_mean": "tcusim.arrays.per_segment",
    "segmented_min": "tcusim.arrays.per_segment",
    "trace": "tcusim.stepper.trace",
    "validate": "tcusim.judge.verdict.validate",
    "validate_shape": "tcusim.judge.correctness.validation",
}


def __getattr__(name: str) -> Any:
    """Return a name whose module is imported when it is first asked for."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_LATER[name]), name)
    return value


def __dir__() -> list[str]:
    """Return the names for completion: those above, without the imported packages."""
    return [*__all__, "__version__"]

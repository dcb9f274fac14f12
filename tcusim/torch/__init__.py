"""Sums, scans and products of torch tensors, as operators that autograd and torch.compile know.

The bits are those of `tcusim.sum` and its kin: a row's are its own, whatever batch it is in, and
known in advance. Tensors in GPU memory are computed there; tensors on the CPU by the simulator,
with the bits of a GPU that `simulated` names.
"""

try:
    import torch as _torch  # noqa: F401 - asked for first, so that its absence is told well
except ImportError as error:
    raise ImportError(
        f"tcusim.torch needs torch, which cannot be imported ({error}). Install it with: "
        "pip install 'tcusim[torch]', or as https://pytorch.org says for your GPU"
    ) from error

from tcusim.torch.functions import (
    cumsum,
    matmul,
    matvec,
    sqrt,
    sum,
)
from tcusim.torch.invariant import ROUTED, batch_invariant
from tcusim.torch.norms import layer_norm, log_softmax, logsumexp, mean, rms_norm, softmax
from tcusim.torch.segments import (
    segment_cumsum,
    segment_max,
    segment_mean,
    segment_min,
    segment_sum,
)
from tcusim.torch.simulation import predict, simulated

__all__ = [
    "ROUTED",
    "batch_invariant",
    "cumsum",
    "layer_norm",
    "log_softmax",
    "logsumexp",
    "matmul",
    "matvec",
    "mean",
    "predict",
    "rms_norm",
    "segment_cumsum",
    "segment_max",
    "segment_mean",
    "segment_min",
    "segment_sum",
    "simulated",
    "softmax",
    "sqrt",
    "sum",
]

"""The operators `torch.ops.tcusim`, by torch's own checks."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed")

from tcusim.errors import InputError  # noqa: E402 - torch is there
from tcusim.torch import operators  # noqa: E402

OPS = torch.ops.tcusim
F32 = torch.float32


def tensor(*shape: int) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1)).requires_grad_()


OFFSETS = torch.tensor([0, 3, 3, 9])
CALLS = [
    (OPS.sum, (tensor(2, 9), [1], False, F32, "segment")),
    (OPS.sum, (tensor(2, 9), None, True, torch.float64, "segment")),
    (OPS.cumsum, (tensor(2, 9), 1, True, False, F32, "segment", None)),
    (OPS.segment_sum, (tensor(2, 9), OFFSETS, 0, 1, True, F32, "segment")),
    (OPS.segment_sum, (tensor(9, 2), None, 4, 0, True, F32, "segment")),
    (OPS.segment_cumsum, (tensor(2, 9), OFFSETS, 0, 1, True, False, True, F32, "segment", None)),
    (OPS.matmul, (tensor(2, 3, 4), tensor(4, 2), F32)),
    (OPS.matvec, (tensor(2, 3, 4), tensor(4), F32)),
    (OPS.sqrt, (tensor(2, 9).detach().abs().requires_grad_(),)),
]


@pytest.mark.parametrize(("operator", "arguments"), CALLS, ids=lambda one: str(one)[:24])
def test_torch_finds_nothing_wrong(operator: Any, arguments: tuple[Any, ...]) -> None:
    found = torch.library.opcheck(operator.default, arguments)
    assert set(found.values()) == {"SUCCESS"}


def test_types_of_results_are_torchs() -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.bool):
        expected = torch.sum(torch.ones(2, dtype=dtype)).dtype
        assert operators.result_type(None, dtype) == expected
    assert operators.result_type(torch.float64, torch.float16) == torch.float64


def test_offsets_are_not_mapped() -> None:
    x = tensor(9)
    call = torch.vmap(lambda o: OPS.segment_sum(x, o, 0, 0, True, F32, "segment"))
    with pytest.raises(InputError, match=r"vmap over offsets: .* Put them end to end"):
        call(torch.stack([OFFSETS, OFFSETS]))

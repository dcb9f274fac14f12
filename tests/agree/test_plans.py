"""Plans on the host backend: several launches, each with the simulator's bits."""

from __future__ import annotations

import numpy as np
import pytest

from tcusim import plan
from tcusim.backends import why_unavailable


@pytest.mark.parametrize("arch", ["volta", "hopper"])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_plan_of_three_launches_on_the_host(arch: str, reverse: bool) -> None:
    reason = why_unavailable("host")
    if reason is not None:
        pytest.skip(reason)
    x = np.random.default_rng(0).standard_normal(2**14 + 300).astype(np.float16)
    simulated, hosted = (
        plan(
            "cumsum",
            length=x.size,
            result="float32",
            arch=arch,
            reverse=reverse,
            backend=name,
            strategy="chunks",
        )
        for name in (None, "host")
    )
    assert len(hosted.launches) == 3
    assert hosted(x).tobytes() == simulated(x).tobytes()

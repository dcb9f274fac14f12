"""Plans on the host backend: several launches, each with the simulator's bits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tcusim import plan
from tcusim.arrays.dtypes import types_on_device
from tcusim.arrays.plans import launches_for
from tcusim.arrays.problem import tile_for
from tcusim.backends import get_backend, why_unavailable


@pytest.mark.parametrize("arch", ["volta", "hopper"])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_plan_of_several_launches_on_the_host(arch: str, reverse: bool) -> None:
    reason = why_unavailable("host")
    if reason is not None:
        pytest.skip(reason)
    x = np.random.default_rng(0).standard_normal(2**14 + 300).astype(np.float16)
    offsets = np.array([0, 300, 300, x.size - 1, x.size])
    simulated, hosted = (
        plan(
            "segmented_cumsum",
            length=x.size,
            segments=offsets.size - 1,
            result="float32",
            arch=arch,
            reverse=reverse,
            backend=name,
        )
        for name in (None, "host")
    )
    assert len(hosted.launches) > 3
    made = [one(x, offsets=offsets).tobytes() for one in (hosted, simulated)]
    assert made[0] == made[1]


@pytest.mark.parametrize(("kind", "size"), [("cumsum", 9000), ("segmented_sum", 7000)])
def test_float16_summed_exactly_in_float64_on_the_host(kind: str, size: int) -> None:
    host = get_backend("host")
    reason = host.available()
    if reason is not None:
        pytest.skip(reason)
    rng = np.random.default_rng(3)
    x = np.ldexp(rng.uniform(-1, 1, size), rng.integers(-26, 10, size)).astype(np.float16)
    offsets = np.array([0, 9, 9, 4000, size])
    options = {"length": x.size} if kind == "cumsum" else {"length": x.size, "segments": 4}
    rule = types_on_device("float16", "float16", "f32", "hopper", bits="exact")
    exact = plan(kind, dtype="float16", bits="exact", **options)
    tile = tile_for(rule.types, None)
    launches = launches_for(replace(exact.problem, types=rule.types, tile=tile)).plan
    given = {"in": x} if kind == "cumsum" else {"in": x, "offsets": offsets}
    more = {} if kind == "cumsum" else {"offsets": offsets}
    assert host.run(launches, given, arch="hopper")["out"].tobytes() == exact(x, **more).tobytes()

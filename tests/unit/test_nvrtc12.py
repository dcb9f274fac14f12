"""NVRTC 12, for the GPUs that CUDA 13 dropped, beside a newer one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kernels import kernel, spoiled
from tcusim.errors import Unsupported
from tcusim_cuda.compile import CompileError, Toolkit, compile_kernel

pytestmark = pytest.mark.usefixtures("cache")


def test_a_gpu_that_cuda_13_dropped() -> None:
    toolkit = Toolkit((13, 0), (75, 80, 90), (), 13000)
    with pytest.raises(Unsupported) as caught:
        toolkit.require_target(kernel(), 70)
    assert str(caught.value) == (
        "reduction_k: NVRTC 13.0 does not compile for sm_70, only for 75, 80, 90. CUDA 13 dropped "
        "the GPUs before sm_75; NVRTC 12, which may be beside it, was not found. Install it with: "
        "pip install 'tcusim[compile]'"
    )


@pytest.fixture
def newer_nvrtc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the bindings have found NVRTC 13, beside NVRTC 12."""
    nvrtc = pytest.importorskip("cuda.bindings.nvrtc")
    monkeypatch.setattr(nvrtc, "nvrtcVersion", lambda: (0, 13, 0))
    monkeypatch.setattr(nvrtc, "nvrtcGetSupportedArchs", lambda: (0, [75, 80, 90]))
    Toolkit.find.cache_clear()
    try:
        if Toolkit.find(70).version[0] > 12:
            pytest.skip("NVRTC 12 is not installed by pip")
        yield
    finally:
        Toolkit.find.cache_clear()


@pytest.mark.usefixtures("newer_nvrtc")
def test_nvrtc_12_compiles_for_the_v100_beside_a_newer_one() -> None:
    cubin = compile_kernel(kernel(), 70)
    assert cubin.compiler.startswith("NVRTC 12.")
    assert cubin.usage.tensor_core == {"HMMA.884": 16}
    assert Toolkit.find(80) is Toolkit.find(81) is Toolkit.find()
    assert Toolkit.find().version == (13, 0)
    with pytest.raises(
        CompileError, match=r'NVRTC 12\.[^"]*identifier "no_such_thing" is undefined'
    ):
        compile_kernel(spoiled("4"), 70)

"""NVRTC 12, for the GPUs that CUDA 13 dropped, beside a newer one."""

from __future__ import annotations

import pytest

from kernels import kernel, spoiled
from tcusim.errors import Unsupported
from tcusim_cuda import compile as compiler
from tcusim_cuda.compile import (
    CompileError,
    Toolkit,
    compile_kernel,
)

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
def newer_nvrtc(monkeypatch: pytest.MonkeyPatch) -> Toolkit:
    """Let the bindings have found NVRTC 13, beside NVRTC 12."""
    if compiler._find_nvrtc_12() is None:
        pytest.skip("NVRTC 12 is not installed by pip")
    newer = Toolkit((13, 0), (75, 80, 90), (), 13000)
    monkeypatch.setattr(compiler, "_find_toolkit", lambda: newer)
    return newer


def test_nvrtc_12_compiles_for_the_v100_beside_a_newer_one(newer_nvrtc: Toolkit) -> None:
    cubin = compile_kernel(kernel(), 70)
    assert cubin.compiler.startswith("NVRTC 12.")
    assert cubin.usage.tensor_core == {"HMMA.884": 16}
    assert Toolkit.find(80) is Toolkit.find(81) is Toolkit.find() is newer_nvrtc
    with pytest.raises(
        CompileError, match=r'NVRTC 12\.[^"]*identifier "no_such_thing" is undefined'
    ):
        compile_kernel(spoiled("4"), 70)

"""The backend "cuda": the libraries of its memory."""

from __future__ import annotations

import pytest

from gpu_standin import StandIn, Torch, X, aligned
from tcusim_cuda import CUDA
from tcusim_cuda.libraries import device_array


@pytest.mark.usefixtures("torch")
def test_torch_gives_memory_for_its_tensors_on_the_stream(gpu: StandIn) -> None:
    like = device_array(Torch.Tensor(aligned(X)), "a")
    for stream, expected in ((3, 3), (0, "default"), (1, "default")):
        Torch.streams.clear()
        owner, address = CUDA.memory(like, 100, stream)
        assert isinstance(owner, Torch.Tensor)
        assert (owner.shape, address) == ((100,), owner.data_ptr())
        assert Torch.streams == [expected]

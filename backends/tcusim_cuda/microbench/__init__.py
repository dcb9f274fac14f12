"""`tcusim microbench`: the figures of this machine's GPU as a unit, from probes that run on it.

The GPU is reached through NVIDIA's driver alone, with kernels that NVRTC compiles: the package
`cuda-bindings`, which the extras "cuda", "cupy" and "pycuda" all install.
"""

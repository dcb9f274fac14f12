"""Benchmarks: a user's waiting times on a GPU, compared with its limits and with other libraries.

`throughput` compares the kernels with the memory and with other libraries on long arrays; `latency`
measures the cost of a call on short ones. Nothing of tcusim imports this package: the command finds
`tcusim bench` through its entry point.
"""

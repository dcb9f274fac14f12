"""Benchmarks: what a user of tcusim waits for on a GPU, beside that GPU's limits and its peers.

`throughput` compares the kernels with the memory and with other libraries on long arrays; `latency`
what one call costs on short ones. Nothing of tcusim imports this package: the command finds
`tcusim bench` through its entry point.
"""

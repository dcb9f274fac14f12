"""The mapping of a fragment's elements to lanes and registers of a warp."""

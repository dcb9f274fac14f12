"""Which lane of a warp holds which element of a fragment, in which register."""

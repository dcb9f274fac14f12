"""An example of a package that extends tcusim; its entry points are in pyproject.toml."""

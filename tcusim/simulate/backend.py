"""The simulator as a backend: "numpy"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tcusim.backends import register_built_in
from tcusim.program.grammar import Program
from tcusim.simulate.interpreter import run_numpy

__all__ = ["NUMPY", "NumpyBackend"]


class NumpyBackend:
    """The simulator: any program, any shape, every architecture, bit for bit."""

    name = "numpy"
    title = "the simulator, on NumPy"

    def available(self) -> str | None:
        """Return None: the simulator needs nothing but NumPy."""
        return None

    def run(
        self,
        program: Program,
        inputs: Mapping[str, Any],
        *,
        arch: str | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """Interpret the program; `arch` None is the interpreter's default."""
        if arch is not None:
            options["arch"] = arch
        return dict(run_numpy(program, inputs, **options))


NUMPY = NumpyBackend()
register_built_in(NUMPY)

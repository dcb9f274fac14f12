"""A backend that runs nothing: it returns its inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tcusim.ir import Program


class EchoBackend:
    """Returns the inputs as the outputs, which is enough to show how a backend is found."""

    name = "example"
    title = "an example that returns its inputs"

    def available(self) -> str | None:
        """Return None: nothing is needed."""
        return None

    def run(
        self,
        program: Program,
        inputs: Mapping[str, Any],
        *,
        arch: str | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """Return the inputs."""
        return dict(inputs)


BACKEND = EchoBackend()

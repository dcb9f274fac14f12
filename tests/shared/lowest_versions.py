"""Print constraints that hold each dependency at the lowest version that pyproject.toml allows.

`make test-lowest` installs with them.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


def requirements(project: Mapping[str, Any]) -> Iterator[str]:
    """Yield the requirements of the package, of its extras and of the dependency groups."""
    yield from project["project"]["dependencies"]
    for extra in project["project"]["optional-dependencies"].values():
        yield from extra
    for group in project["dependency-groups"].values():
        yield from (one for one in group if isinstance(one, str))


def lowest(requirement: str) -> str | None:
    """Return a requirement with its floor for a version, or None if it has no floor."""
    found = re.fullmatch(
        r"(?P<name>[\w.-]+)(\[.*\])?\s*>=\s*(?P<floor>[\w.]+)[^;]*(?P<marker>;.*)?", requirement
    )
    return found and f"{found['name']}=={found['floor']}{found['marker'] or ''}"


def constraints(text: str) -> list[str]:
    """Return one constraint for each requirement of a pyproject.toml that has a floor."""
    given = {lowest(requirement) for requirement in requirements(tomllib.loads(text))}
    return sorted(one for one in given if one is not None)


if __name__ == "__main__":
    sys.stdout.write("\n".join(constraints(PYPROJECT.read_text())) + "\n")

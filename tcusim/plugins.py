"""Additions by installed packages: entry points, found without importing any of them."""

from __future__ import annotations

import importlib.metadata
from dataclasses import dataclass
from typing import Any

from tcusim import errors

__all__ = ["Extension", "entry_points_of"]


@dataclass(frozen=True, slots=True)
class Extension:
    """One entry point of an installed package: an addition to tcusim, not yet imported.

    Attributes
    ----------
    group, name, value : str
        As the package declares them: ``[project.entry-points.group] name = "value"``.
    distribution : str
        The package and its version.
    """

    group: str
    name: str
    value: str
    distribution: str
    _entry_point: importlib.metadata.EntryPoint

    def load(self) -> Any:
        """Import the module and return the object; an ImportError is the caller's to explain."""
        try:
            return self._entry_point.load()
        except AttributeError as error:
            raise errors.InputError(f"{self} cannot be loaded: {error}") from error

    def __str__(self) -> str:
        return f"entry point {self.name!r} = {self.value!r} ({self.group}) of {self.distribution}"


def entry_points_of(group: str) -> tuple[Extension, ...]:
    """Return the installed additions of one group, such as ``tcusim.units``, importing none.

    Raises
    ------
    InputError
        Two packages use one name.
    """
    found: dict[str, Extension] = {}
    for entry_point in importlib.metadata.entry_points(group=group):
        extension = Extension(
            group, entry_point.name, entry_point.value, _distribution(entry_point), entry_point
        )
        other = found.setdefault(extension.name, extension)
        if other is not extension:
            raise errors.InputError(
                f"{extension.distribution} and {other.distribution} both have an entry point "
                f"{extension.name!r} in {group}. Uninstall one of them."
            )
    return tuple(found.values())


def _distribution(entry_point: importlib.metadata.EntryPoint) -> str:
    if entry_point.dist is None:
        return "an unknown package"
    return f"{entry_point.dist.name} {entry_point.dist.version}"

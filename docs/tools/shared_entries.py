"""Give each name of a shared docstring entry its own type and default.

numpydoc lets parameters share one entry, ``a, dtype, out : ...``. Griffe reads the type and the
default of the first and shows them for all; this extension asks the signature instead.
"""

from __future__ import annotations

from typing import Any

import griffe


class SharedEntries(griffe.Extension):
    """Correct the parameters of every function, from its signature."""

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        """Correct a package that has just been loaded."""
        _correct(pkg)


def _correct(owner: griffe.Module | griffe.Class) -> None:
    for member in owner.members.values():
        if member.is_alias:
            continue
        if isinstance(member, (griffe.Module, griffe.Class)):
            _correct(member)
        elif isinstance(member, griffe.Function) and member.docstring is not None:
            _correct_function(member)


def _correct_function(function: griffe.Function) -> None:
    assert function.docstring is not None
    function.docstring.parser = "numpy"
    for section in function.docstring.parsed:
        if section.kind is not griffe.DocstringSectionKind.parameters:
            continue
        for entry in section.value:
            if entry.name not in function.parameters:
                continue
            parameter = function.parameters[entry.name]
            entry.value = None if parameter.required else str(parameter.default)
            if not _has_its_own_type(function, entry.name):
                entry.annotation = parameter.annotation


def _has_its_own_type(function: griffe.Function, name: str) -> bool:
    """Return whether the docstring has `name : type` on a line of its own."""
    assert function.docstring is not None
    lines = function.docstring.value.splitlines()
    return any(line.strip().startswith(f"{name} :") for line in lines)

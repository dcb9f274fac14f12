"""Commands of the packages beside tcusim, imported when they are called."""

from __future__ import annotations

import importlib.util
import pkgutil
import sys
from pathlib import Path
from typing import Any, Final

import click

import tcusim
from tcusim.errors import InputError

_FOLDER: Final = "backends"


class LazyCommand(click.Command):
    """A command in another package, which the help of `tcusim` does not import.

    target: the command's object, as "package.module:object". A package that is not installed, such
    as the benchmarks, is found in a checkout: the current folder or one above it.
    """

    def __init__(self, name: str, target: str, short_help: str) -> None:
        super().__init__(name, short_help=short_help)
        self.target = target

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **more: Any,
    ) -> click.Context:
        """Return the context of the command itself.

        Raises
        ------
        InputError
            If its package is neither installed nor in a checkout here.
        """
        package = self.target.partition(".")[0]
        if importlib.util.find_spec(package) is None:
            # Last on the path: other packages in the folder must not replace installed ones.
            sys.path.append(str(self._folder_of(package)))
        command: click.Command = pkgutil.resolve_name(self.target)
        return command.make_context(info_name, args, parent, **more)

    def _folder_of(self, package: str) -> Path:
        here = Path.cwd()
        for root in (here, *here.parents):
            if (root / "tcusim").is_dir() and (root / _FOLDER / package).is_dir():
                return root / _FOLDER
        raise InputError(
            f"tcusim {self.name} is part of tcusim's source, and not of the installed package. Go "
            f"to the folder of a checkout of tcusim {tcusim.__version__}, and repeat the command "
            f"there with this Python; {here} is none"
        )

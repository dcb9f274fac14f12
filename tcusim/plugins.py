"""Additions by installed packages, and the registries that they are added to.

Entry points are read once a process; none is imported before somebody asks for what it may be. One
that cannot be used is listed by `broken`, and takes nothing else down.
"""

from __future__ import annotations

import functools
import importlib.metadata
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from tcusim import errors

__all__ = [
    "OWN",
    "Broken",
    "Extension",
    "Registry",
    "broken",
    "declared",
    "entry_points_of",
    "restored",
]

T = TypeVar("T")

# Every group of entry points that tcusim reads begins with this.
_PREFIX: Final = "tcusim."

# The owner of what comes with tcusim.
OWN: Final = "tcusim itself"

_NAMELESS: Final = "a package without metadata"


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
    _entry_point: importlib.metadata.EntryPoint = field(compare=False)

    def load(self) -> Any:
        """Import the module and return the object; whatever goes wrong becomes an InputError."""
        if self._entry_point.pattern.match(self.value) is None:
            raise errors.InputError(f"{self} cannot be loaded: write it as 'module:object'")
        try:
            return self._entry_point.load()
        except ImportError as error:
            reason = f"{error}. Install it with: {self._install_command()}"
            raise errors.InputError(f"{self} cannot be loaded: {reason}") from error
        except AttributeError as error:
            raise errors.InputError(f"{self} cannot be loaded: {error}") from error
        except (Exception, SystemExit) as error:
            reason = f"{type(error).__name__}: {error}"
            raise errors.InputError(f"{self} cannot be loaded: {reason}") from error

    def _install_command(self) -> str:
        """Return the pip command for its library: by rule, an extra with the entry's name."""
        dist = self._entry_point.dist
        if dist is None or self.distribution.startswith(_NAMELESS):
            return "pip install --force-reinstall, and the package's name"
        package = self.distribution.split()[0]
        extras = dist.metadata.get_all("Provides-Extra") or []
        extra = self.name.replace("_", "-")
        if extra in (known.replace("_", "-") for known in extras):
            return f"pip install '{package}[{extra}]'"
        return f"pip install --upgrade {package}"

    def __str__(self) -> str:
        return f"entry point {self.name!r} = {self.value!r} ({self.group}) of {self.distribution}"


@dataclass(frozen=True, slots=True)
class Broken:
    """An addition that cannot be used.

    Attributes
    ----------
    distribution : str
        The package that declares it, and its version.
    name : str
        The entry point; empty if none of the package's could be read.
    reason : str
        A sentence that names the entry point and says what is wrong with it.
    """

    distribution: str
    name: str
    reason: str

    def __str__(self) -> str:
        return self.reason


@dataclass(frozen=True, slots=True)
class _Declared:
    """What all installed packages declare: by group, then by the entry point's name."""

    extensions: dict[str, dict[str, Extension]] = field(default_factory=dict)
    broken: dict[str, dict[str, Broken]] = field(default_factory=dict)


def entry_points_of(group: str) -> tuple[Extension, ...]:
    """Return the installed additions of one group, such as ``tcusim.shapes``, importing none.

    Those of one name from two packages are left out, and are listed by `broken`.
    """
    return tuple(declared().extensions.get(group, {}).values())


@contextmanager
def restored() -> Iterator[None]:
    """Forget at the end what was registered within; tests and notebooks try things out."""
    kept = [(registry, registry.state()) for registry in _registries]
    try:
        yield
    finally:
        _registries[:] = [registry for registry, _ in kept]
        for registry, state in kept:
            registry.restore(state)


def broken() -> tuple[Broken, ...]:
    """Return every addition that cannot be used, of whatever kind; all are imported for that."""
    for registry in _registries:
        registry.all()
    found = [one for group in declared().broken.values() for one in group.values()]
    return (*found, *(one for registry in _registries for one in registry.broken()))


@functools.cache
def declared() -> _Declared:
    """Return all entry points for tcusim that packages declare, read once a process."""
    result = _Declared()
    seen: set[str] = set()
    for distribution in importlib.metadata.distributions():
        try:
            if _PREFIX not in (distribution.read_text("entry_points.txt") or ""):
                continue
            name = _name_of(distribution)
            # Of two copies on the path, Python imports the first one.
            key = name if name.startswith(_NAMELESS) else name.split()[0]
            if key in seen:
                continue
            seen.add(key)
            for entry_point in distribution.entry_points:
                if entry_point.group.startswith(_PREFIX):
                    _declare(result, Extension(*_fields(entry_point), name, entry_point))
        # A damaged package may raise anything here, and is not the only one installed.
        except Exception as error:
            name = _name_of(distribution)
            reason = f"the entry points of {name} cannot be read: {type(error).__name__}: {error}"
            result.broken.setdefault("", {})[name] = Broken(name, "", reason)
    return result


def _fields(entry_point: importlib.metadata.EntryPoint) -> tuple[str, str, str]:
    return entry_point.group, entry_point.name, entry_point.value


def _declare(known: _Declared, new: Extension) -> None:
    """Add an extension; where another has its name, neither can be used."""
    extensions = known.extensions.setdefault(new.group, {})
    clashes = known.broken.setdefault(new.group, {})
    if new.name in clashes:
        return
    other = extensions.setdefault(new.name, new)
    if other is not new:
        del extensions[new.name]
        both = f"{other.distribution} and {new.distribution}"
        clashes[new.name] = Broken(
            both,
            new.name,
            f"{both} both have an entry point {new.name!r} in {new.group}. Uninstall one of them.",
        )


def _name_of(distribution: importlib.metadata.Distribution) -> str:
    """Return the package and its version; a damaged one may have neither."""
    try:
        fields = [distribution.metadata[name] or "" for name in ("Name", "Version")]
    except Exception:
        fields = []
    nameless = f"{_NAMELESS} in {distribution.locate_file('')}"
    return " ".join(fields).strip() or nameless


class Registry(Generic[T]):
    """What bears names of one kind: tcusim's own, the user's, and those of installed packages.

    Parameters
    ----------
    kind : str
        What it holds, for messages, such as ``"shape"``.
    group : str
        The group of entry points that adds to it.
    names : callable
        Returns the names of an item, its own first.
    members : callable
        Returns the items of an extension's object, or raises an InputError.
    spelled : callable
        Returns a name as it counts in a lookup; by default case does not.
    by_entry : bool
        Whether an item has the name of its entry point, so that only that one is imported; if not,
        all are when a name is not known.
    """

    def __init__(
        self,
        kind: str,
        group: str,
        names: Callable[[T], Sequence[str]],
        members: Callable[[Any], Iterable[T]],
        *,
        by_entry: bool = False,
        spelled: Callable[[str], str] = str.lower,
    ) -> None:
        self._kind = kind
        self._group = group
        self._names = names
        self._members = members
        self._by_entry = by_entry
        self._spelled = spelled
        self._items: dict[str, T] = {}
        self._by_name: dict[str, T] = {}
        self._owners: dict[str, str] = {}
        self._tried: set[str] = set()
        self._broken: dict[str, Broken] = {}
        # Of one that can be taken twice: a package may register things while it is imported.
        self._lock = threading.RLock()
        _registries.append(self)

    def add(self, item: T, owner: str) -> T:
        """Add an item, and return it; an equal one may be added again.

        Raises
        ------
        InputError
            If another item has one of its names.
        """
        with self._lock:
            names = self._names(item)
            for name in names:
                known = self._by_name.get(self._spelled(name))
                if known is not None and known != item:
                    self._refuse(name, owner, self._owners[self._names(known)[0]])
                # What comes with tcusim is first, and no reason to read all packages at import.
                if known is None and owner != OWN and (pending := self._pending(name)):
                    self._refuse(name, owner, pending.distribution)
            known = self._items.setdefault(names[0], item)
            self._owners.setdefault(names[0], owner)
            self._by_name.update((self._spelled(name), known) for name in names)
            return known

    def known(self, name: object) -> T | None:
        """Return the item whose own name this is, letter by letter: what most lookups find."""
        return self._items.get(name) if isinstance(name, str) else None

    def find(self, name: object) -> T | Broken | None:
        """Return the item of this name, why there is none though it was declared, or None."""
        item = self.known(name)
        if item is not None:
            return item
        spelled, key = self._spelled(str(name)), str(name).lower()
        if spelled not in self._by_name:
            self._load(key if self._by_entry else None)
        if spelled in self._by_name:
            return self._by_name[spelled]
        return self._broken.get(key) or declared().broken.get(self._group, {}).get(key)

    def get(self, name: object, *, hint: str = "") -> T:
        """Return the item of this name.

        Raises
        ------
        UnknownName
            If there is none: with the nearest name, the valid ones and `hint`.
        InputError
            If an installed package declares it, and is broken.
        """
        found = self.find(name)
        if isinstance(found, Broken):
            raise errors.InputError(found.reason)
        if found is None:
            raise self.unknown(name, hint)
        return found

    def unknown(self, name: object, hint: str = "") -> errors.UnknownName:
        """Return the error for a name that nothing bears."""
        listed = self.names()
        known = {one for item in self._items.values() for one in self._names(item)}
        error = errors.unknown_name(self._kind, name, {*known, *listed}, listed)
        unusable = "".join(f" Not usable: {one}" for one in self._broken.values())
        return errors.UnknownName(f"{error}{hint}{unusable}")

    def all(self) -> tuple[T, ...]:
        """Return all items, in the order in which they were added; every extension is loaded."""
        self._load(None)
        return tuple(self._items.values())

    def names(self) -> tuple[str, ...]:
        """Return the name of each item, without its other names.

        Where those are names of entry points nothing is imported, and what is broken is named too.
        """
        if not self._by_entry:
            return tuple(self._names(item)[0] for item in self.all())
        installed = [found.name for found in entry_points_of(self._group)]
        clashes = declared().broken.get(self._group, {})
        return tuple(dict.fromkeys([*self._items, *installed, *clashes]))

    def broken(self) -> tuple[Broken, ...]:
        """Return the extensions that were loaded, and failed."""
        return tuple(self._broken.values())

    def state(self) -> tuple[Any, ...]:
        """Return a copy of what is registered, for `restore`."""
        return tuple(copy(getattr(self, name)) for name in _STATE)

    def restore(self, state: tuple[Any, ...]) -> None:
        """Put back what was registered."""
        for name, value in zip(_STATE, state, strict=True):
            setattr(self, name, value)

    def _pending(self, name: str) -> Extension | None:
        """Return the extension that has this name for an item which is not loaded yet."""
        if not self._by_entry or name in self._tried:
            return None
        return declared().extensions.get(self._group, {}).get(name)

    def _refuse(self, name: str, owner: str, known_owner: str) -> None:
        article = "an" if self._kind[0] in "aeiou" else "a"
        raise errors.InputError(
            f"{owner}: there is already {article} {self._kind} {name!r}, from {known_owner}. "
            f"Give the new one another name."
        )

    def _load(self, name: str | None) -> None:
        """Load the extension of this name, or all; each is tried once."""
        with self._lock:
            for found in entry_points_of(self._group):
                if found.name in self._tried or name not in (None, found.name.lower()):
                    continue
                self._tried.add(found.name)
                try:
                    for item in self._members(found.load()):
                        self._require_name(item, found)
                        self.add(item, found.distribution)
                except errors.InputError as error:
                    reason = str(error)
                    if str(found) not in reason:
                        reason = f"{found} cannot be used: {reason}"
                    self._broken[found.name.lower()] = Broken(
                        found.distribution, found.name, reason
                    )

    def _require_name(self, item: T, found: Extension) -> None:
        name = self._names(item)[0]
        if self._by_entry and name != found.name:
            raise errors.InputError(
                f"its {self._kind} is called {name!r}, and must have the name of the entry point"
            )


_registries: list[Registry[Any]] = []
_STATE: Final = ("_items", "_by_name", "_owners", "_tried", "_broken")

"""Additions by installed packages, and the registries that they are added to.

Entry points are read once a process; each is imported only when a lookup may need it. An unusable
one is listed by `broken`, and does not affect the others.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from tcusim import errors

if TYPE_CHECKING:
    from importlib.metadata import Distribution, EntryPoint

T = TypeVar("T")

# Every group of entry points that tcusim reads begins with this.
_PREFIX: Final = "tcusim."

# The owner of tcusim's own items.
OWN: Final = "tcusim itself"

_NAMELESS: Final = "a package without metadata"


@dataclass(frozen=True, slots=True)
class Extension:
    """One entry point of an installed package: an addition to tcusim, not yet imported.

    entry_point: as the package declares it, ``[project.entry-points.group] name = "value"``.
    distribution: the package and its version.
    """

    entry_point: EntryPoint
    distribution: str

    @property
    def name(self) -> str:
        """The name of the entry point."""
        return self.entry_point.name

    def load(self) -> Any:
        """Import the module and return the object; any failure becomes an InputError."""
        if self.entry_point.pattern.match(self.entry_point.value) is None:
            raise errors.InputError(f"{self} cannot be loaded: write it as 'module:object'")
        try:
            return self.entry_point.load()
        # A module of somebody else's may raise anything while it is imported, and may even exit.
        except (Exception, SystemExit) as error:
            reason = f"{type(error).__name__}: {error}"
            if isinstance(error, ImportError):
                reason = f"{error}. Install it with: {self._install_command()}"
            elif isinstance(error, AttributeError):
                reason = str(error)
            raise errors.InputError(f"{self} cannot be loaded: {reason}") from error

    def _install_command(self) -> str:
        """Return the pip command for its library: by rule, an extra with the entry's name."""
        dist = self.entry_point.dist
        if dist is None or self.distribution.startswith(_NAMELESS):
            return "pip install --force-reinstall, and the package's name"
        package = self.distribution.split()[0]
        extras = dist.metadata.get_all("Provides-Extra") or []
        extra = self.name.replace("_", "-")
        if extra in (known.replace("_", "-") for known in extras):
            return f"pip install '{package}[{extra}]'"
        return f"pip install --upgrade {package}"

    def __str__(self) -> str:
        point = self.entry_point
        return f"entry point {self.name!r} = {point.value!r} ({point.group}) of {self.distribution}"


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
        A sentence that names the entry point and its fault.
    """

    distribution: str
    name: str
    reason: str

    def __str__(self) -> str:
        return self.reason


def entry_points_of(group: str) -> tuple[Extension, ...]:
    """Return the installed additions of one group, such as ``tcusim.shapes``, importing none.

    Those of one name from two packages are left out, and are listed by `broken`.
    """
    found = declared().get(group, {}).values()
    return tuple(one for one in found if isinstance(one, Extension))


@contextmanager
def restored() -> Iterator[None]:
    """Undo at the end all registrations made inside, for tests and notebooks."""
    kept = {
        registry: {key: copy(held) for key, held in vars(registry).items() if type(held) in _STATE}
        for registry in _registries
    }
    try:
        yield
    finally:
        _registries[:] = kept
        for registry, state in kept.items():
            vars(registry).update(state)


def broken() -> tuple[Broken, ...]:
    """Return every unusable addition, of any kind; imports all of them."""
    found = [one for group in declared().values() for one in group.values()]
    for registry in _registries:
        registry.all()
        found += registry.broken()
    return tuple(dict.fromkeys(one for one in found if isinstance(one, Broken)))


@functools.cache
def declared() -> dict[str, dict[str, Extension | Broken]]:
    """Return the declarations of all installed packages, by group, then by entry point name.

    Where two packages have one name, neither can be used. It is read once a process.
    """
    # It loads the modules of e-mail, and no sum needs it.
    from importlib.metadata import distributions

    found: dict[str, dict[str, Extension | Broken]] = {}
    seen: set[str] = set()
    for distribution in distributions():
        try:
            if _PREFIX not in (distribution.read_text("entry_points.txt") or ""):
                continue
            name = _name_of(distribution)
            # Of two copies on the path, Python imports the first one.
            key = name if name.startswith(_NAMELESS) else name.split()[0]
            if key in seen:
                continue
            seen.add(key)
            for point in distribution.entry_points:
                if point.group.startswith(_PREFIX):
                    group, new = found.setdefault(point.group, {}), Extension(point, name)
                    other = group.setdefault(point.name, new)
                    if isinstance(other, Extension) and other is not new:
                        group[point.name] = _clash(other, new)
        # A damaged package may raise anything here, and is not the only one installed.
        except Exception as error:
            name = _name_of(distribution)
            reason = f"the entry points of {name} cannot be read: {type(error).__name__}: {error}"
            found.setdefault("", {})[name] = Broken(name, "", reason)
    return found


def _clash(one: Extension, other: Extension) -> Broken:
    both, name = f"{one.distribution} and {other.distribution}", one.name
    where = f"an entry point {name!r} in {one.entry_point.group}"
    return Broken(both, name, f"{both} both have {where}. Uninstall one of them.")


def _name_of(distribution: Distribution) -> str:
    """Return the package and its version; a damaged one may have neither."""
    try:
        fields = [distribution.metadata[name] or "" for name in ("Name", "Version")]
    # Metadata that are missing or no text raise one thing or another, by the version of Python.
    except Exception:
        fields = []
    nameless = f"{_NAMELESS} in {distribution.locate_file('')}"
    return " ".join(fields).strip() or nameless


def items_of(value: object, kind: type[T], rule: str) -> tuple[T, ...]:
    """Return the items that an entry point or a user names: one, or several in a list or tuple.

    rule: the sentence for anything else, such as "a shape must be an MmaShape".
    """
    several = tuple(value) if isinstance(value, list | tuple) else (value,)
    for item in several:
        if not isinstance(item, kind):
            raise errors.InputError(f"{rule}, got {errors.told(item)}")
    return several


@dataclass(eq=False)
class Registry(Generic[T]):
    """The items of one kind by name: tcusim's own, the user's, and those of installed packages.

    kind: of its items, for messages, such as "shape". group: of the entry points that add to it.
    names_of: returns the names of an item, its own first. members: returns the items of an
    extension's object, or raises an InputError. by_entry: whether an item has the name of its entry
    point, so that only that one is imported; if not, all are when a name is not known. spelled:
    returns a name as it counts in a lookup; by default case does not.
    """

    kind: str
    group: str
    names_of: Callable[[T], Sequence[str]]
    members: Callable[[Any], Iterable[T]]
    by_entry: bool = field(default=False, kw_only=True)
    spelled: Callable[[str], str] = field(default=str.lower, kw_only=True)
    # Called once another item has taken the place of one.
    after_replacing: list[Callable[[], None]] = field(default_factory=list, init=False)
    _items: dict[str, T] = field(default_factory=dict, init=False)
    # By each name, as it is spelled in a lookup: an item, and who added it.
    _by_name: dict[str, tuple[T, str]] = field(default_factory=dict, init=False)
    _tried: set[str] = field(default_factory=set, init=False)
    _broken: dict[str, Broken] = field(default_factory=dict, init=False)
    # Of one that can be taken twice: a package may register things while it is imported.
    _lock: threading.RLock = field(default_factory=threading.RLock, init=False)

    def __post_init__(self) -> None:
        _registries.append(self)

    def add(self, item: T, owner: str) -> T:
        """Add an item, and return it; an equal one may be added again.

        Raises
        ------
        InputError
            If another item has one of its names.
        """
        with self._lock:
            names = self.names_of(item)
            for name in names:
                known = self._by_name.get(self.spelled(name))
                if known is not None and known[0] != item:
                    self._refuse(name, owner, known[1])
                # tcusim's own items come first, and must not cause a scan of all packages at
                # import.
                if known is None and owner != OWN and self.by_entry and name not in self._tried:
                    pending = declared().get(self.group, {}).get(name)
                    if isinstance(pending, Extension):
                        self._refuse(name, owner, pending.distribution)
            item = self._items.setdefault(names[0], item)
            for name in names:
                self._by_name.setdefault(self.spelled(name), (item, owner))
            return item

    def replace(self, item: T, owner: str) -> T:
        """Add an item, in place of the one that this owner added under its name; return it.

        Raises
        ------
        InputError
            If an item of somebody else's has one of its names.
        """
        with self._lock:
            known = self._by_name.get(self.spelled(self.names_of(item)[0]))
            if known is not None and known[1] == owner:
                del self._items[self.names_of(known[0])[0]]
                self._by_name = {
                    name: entry for name, entry in self._by_name.items() if entry[0] is not known[0]
                }
            added = self.add(item, owner)
        if known is not None and known[0] != added:
            for call in self.after_replacing:
                call()
        return added

    def known(self, name: object) -> T | None:
        """Return the item with exactly this own name: the result of most lookups."""
        return self._items.get(name) if isinstance(name, str) else None

    def find(self, name: object) -> T | Broken | None:
        """Return the item of this name, why there is none though it was declared, or None."""
        item = self.known(name)
        if item is not None:
            return item
        text = name if isinstance(name, str) else errors.told(name)
        spelled, key = self.spelled(text), text.lower()
        if spelled not in self._by_name:
            self._load(key if self.by_entry else None)
        return self._by_name[spelled][0] if spelled in self._by_name else self._broken.get(key)

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
        """Return the error for an unknown name."""
        listed = self.names()
        known = {one for item in self._items.values() for one in self.names_of(item)}
        error = errors.unknown_name(self.kind, name, {*known, *listed}, listed)
        unusable = "".join(f" Not usable: {one}" for one in self._broken.values())
        return errors.UnknownName(f"{error}{hint}{unusable}")

    def all(self) -> tuple[T, ...]:
        """Return all items, in the order in which they were added; every extension is loaded."""
        self._load(None)
        return tuple(self._items.values())

    def names(self) -> tuple[str, ...]:
        """Return the name of each item, without its other names.

        If these are entry point names nothing is imported, and broken entries are named too.
        """
        if self.by_entry:
            return tuple(dict.fromkeys([*self._items, *declared().get(self.group, {})]))
        return tuple(self.names_of(item)[0] for item in self.all())

    def broken(self) -> tuple[Broken, ...]:
        """Return the extensions that were to be loaded, and cannot be."""
        return tuple(self._broken.values())

    def _refuse(self, name: str, owner: str, known_owner: str) -> None:
        article = "an" if self.kind[0] in "aeiou" else "a"
        raise errors.InputError(
            f"{owner}: there is already {article} {self.kind} {name!r}, from {known_owner}. "
            f"Give the new one another name."
        )

    def _load(self, wanted: str | None) -> None:
        """Load the extension of this name, or all; each is tried once."""
        with self._lock:
            for name, found in declared().get(self.group, {}).items():
                if name in self._tried or wanted not in (None, name.lower()):
                    continue
                self._tried.add(name)
                if isinstance(found, Broken):
                    self._broken[name.lower()] = found
                    continue
                try:
                    for item in self.members(found.load()):
                        own = self.names_of(item)[0]
                        if self.by_entry and own != name:
                            called = f"its {self.kind} is called {own!r}"
                            required = "and must have the name of the entry point"
                            raise errors.InputError(f"{called}, {required}")
                        self.add(item, found.distribution)
                except errors.InputError as error:
                    reason = str(error)
                    if str(found) not in reason:
                        reason = f"{found} cannot be used: {reason}"
                    self._broken[name.lower()] = Broken(found.distribution, name, reason)


_registries: list[Registry[Any]] = []
# The types of a registry's mutable state, as opposed to its configuration.
_STATE: Final = (dict, set)

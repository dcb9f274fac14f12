"""Every error that tcusim raises on purpose, and the one wording for an unknown name.

A message states the place, the expectation, the actual value, and the remedy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

__all__ = [
    "AgreementError",
    "BackendUnavailable",
    "Given",
    "InputError",
    "TcusimError",
    "UnknownName",
    "Unsupported",
    "VerifyError",
    "unknown_name",
]


# More than any memory holds: the bound of sizes and counts.
MOST_ELEMENTS: Final = 2**48
# More processes than any machine runs: the bound of `jobs`.
MOST_JOBS: Final = 4096


class Given(NamedTuple):
    """A parameter within a message, with a value where the message is about one.

    Python spells it ``acc 'f16'`` or ``masked=True``, however a call gives it: as a keyword, or
    among the options. The command spells it as its option.
    """

    parameter: str
    value: Any = None

    def __str__(self) -> str:
        """Return the spelling for messages in Python."""
        if self.value is None:
            return self.parameter
        joint = " " if isinstance(self.value, str) else "="
        return f"{self.parameter}{joint}{told(self.value)}"


class TcusimError(Exception):
    """Base of every error that tcusim raises on purpose.

    Attributes
    ----------
    pieces : tuple
        The message in pieces: texts, and each parameter as a `Given`.
    parameter : str
        The first parameter of the message; "" if it names none that way.
    value : object
        The value of that parameter in the message; None if it has none.
    """

    # Without a constructor of its own, which torch.compile cannot trace.

    @property
    def pieces(self) -> tuple[Any, ...]:
        """The message in pieces."""
        return self.args

    def __str__(self) -> str:
        """Return the message as Python's users read it."""
        return self.spelled(str)

    def __repr__(self) -> str:
        """Return the class and the message."""
        return f"{type(self).__name__}({str(self)!r})"

    def spelled(self, spell: Callable[[Given], str]) -> str:
        """Return the message with each parameter as `spell` spells it."""
        return "".join(spell(one) if isinstance(one, Given) else str(one) for one in self.pieces)

    @property
    def parameter(self) -> str:
        """The first parameter of the message."""
        return self._first.parameter

    @property
    def value(self) -> Any:
        """The value of the first parameter."""
        return self._first.value

    @property
    def _first(self) -> Given:
        return next((one for one in self.pieces if isinstance(one, Given)), Given(""))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the error with its pieces, for worker processes that pass their errors on."""
        return type(self).__new__, (type(self), *self.args), self.__dict__


class InputError(TcusimError, ValueError):
    """An argument, an array or a file cannot be used as given."""


class UnknownName(InputError):
    """A shape, architecture, algorithm, backend or type has no such name."""


class Unsupported(InputError):
    """The parts are known, but do not go together (or their behaviour is unknown)."""


class VerifyError(TcusimError):
    """A step program breaks a rule of the grammar or of the hardware.

    Attributes
    ----------
    check : str
        Name of the check that failed, one of ``tcusim.program.checks.verifier.CHECKS``.
    program : str
        Name of the program.
    path : str
        Path of the step, such as ``"7.2"``; empty if the program itself is at fault.
    step : str
        The listing line of the step.
    """

    def __init__(self, check: str, program: str, path: str, step: str, message: str) -> None:
        self.check = check
        self.program = program
        self.path = path
        self.step = step
        where = f"{program}, step {path}" if path else program
        quoted = f" `{step}`" if step else ""
        super().__init__(f"{where}:{quoted} {message}  [check: {check}]")


class BackendUnavailable(TcusimError, RuntimeError):
    """A backend is not installed here, or has no device to run on."""


class AgreementError(TcusimError, AssertionError):
    """Two backends returned different bits for one program."""


def require_names(**given: object) -> None:
    """Raise InputError unless each of some parameters is a string or None."""
    for parameter, value in given.items():
        if value is not None and not isinstance(value, str):
            raise InputError(Given(parameter), f" must be a name, got {told(value)}")


def names_of(parameter: str, given: object) -> list[str]:
    """Return the names that a parameter gives: one, or several; InputError of anything else."""
    names = [given] if isinstance(given, str) else given
    if not isinstance(names, list | tuple) or not all(isinstance(one, str) for one in names):
        raise InputError(Given(parameter), f" must be a name, or several, got {told(given)}")
    return list(names)


def require_int(what: str | Given, value: Any, least: int, most: int = MOST_ELEMENTS) -> None:
    """Raise InputError unless a value is an integer within these bounds."""
    is_int = isinstance(value, int) and not isinstance(value, bool)
    if is_int and least <= value <= most:
        return
    bounds = f"an integer within {least}..{most}"
    if most == MOST_ELEMENTS:
        too_large = is_int and value > most
        bounds = "at most 2**48" if too_large else f"an integer of at least {least}"
    raise InputError(what, f" must be {bounds}, got {told(value)}")


def require_choice(
    what: str | Given, value: object, choices: Iterable[str], otherwise: str = ""
) -> None:
    """Raise InputError unless a value is one of some texts.

    otherwise: another value that was allowed before, in words, such as ", or '' for all".
    """
    choices = tuple(choices)
    if not isinstance(value, str) or value not in choices:
        names = ", ".join(choices)
        raise InputError(what, f" must be one of {names}{otherwise}, got {told(value)}")


def require_flags(**given: object) -> None:
    """Raise InputError unless each of some parameters is True or False.

    A string such as "no", or an array, would be taken for one or the other in silence.
    """
    for parameter, value in given.items():
        # NumPy's booleans have no base in common with Python's. 1 equals True, and is a number.
        if type(value).__name__ not in ("bool", "bool_"):
            raise InputError(Given(parameter), f" must be True or False, got {told(value)}")


def told(value: object) -> str:
    """Return a value as messages show it: Python refuses to write an integer of many digits."""
    if isinstance(value, int) and abs(value) >= 2**128:
        return f"an integer of {value.bit_length()} bits"
    try:
        return repr(value)
    except ValueError:
        return f"a {type(value).__name__} with an integer of thousands of digits"


def nearest(name: str, names: Iterable[str], cutoff: float = 0.5) -> str:
    """Return the name that a misspelled or truncated one stands for; "" if it is like none.

    cutoff: how like it must be, up to 1.
    """
    names = list(names)
    longer = [one for one in names if name and one.startswith(name)]
    if len(longer) == 1:
        return longer[0]
    # Only a mistake needs it.
    import difflib

    return next(iter(difflib.get_close_matches(name, names, n=1, cutoff=cutoff)), "")


def unknown_name(
    kind: str, name: object, valid: Iterable[str], listed: Iterable[str] | None = None
) -> UnknownName:
    """Return the error for a name that is not registered: the nearest match and the valid list.

    Where most of the valid names are other names of a few things, `listed` are these.
    """
    names = sorted(valid)
    near = nearest(name.lower(), names) if isinstance(name, str) else ""
    hint = f" Did you mean {near!r}?" if near else ""
    shown = names if listed is None else sorted(listed)
    return UnknownName(f"unknown {kind} {told(name)}.{hint} Valid: {', '.join(shown)}.")

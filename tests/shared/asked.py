"""Keywords of array functions as tests collect them: options and others in one dictionary."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from tcusim import Options

OPTIONS = tuple(field.name for field in fields(Options))


def asked(**keywords: Any) -> dict[str, Any]:
    """Return the keywords of a call, its options as one of them."""
    own = {name: value for name, value in keywords.items() if name in OPTIONS}
    rest = {name: value for name, value in keywords.items() if name not in own}
    # Options that are given as such are all there are.
    return {"options": own, **rest} if own else rest

"""Citations as links: `[KHATTAK25]` in a page leads to its entry in the references."""

from __future__ import annotations

import posixpath
import re

__all__ = ["linked"]

# A key is capitals and digits, as in [KHATTAK25] or [CPG sec. 10.24.1]; what has a target already,
# and what is code, stays.
_CITATION = re.compile(r"(?<![\[\]])\[([A-Z][A-Z0-9]{2,})((?: [^\]\n]*)?)\](?![\](])")
_CODE = re.compile(r"(^```.*?^```[^\n]*$|``.*?``|`[^`\n]*`)", re.MULTILINE | re.DOTALL)


def linked(text: str, page: str = "index.md") -> str:
    """Return Markdown with its citations as links, relative to a page such as `api/core.md`."""
    target = posixpath.relpath("references.md", posixpath.dirname(page) or ".")

    def link(match: re.Match[str]) -> str:
        key, rest = match.groups()
        return f"[[{key}{rest}]]({target}#{key})"

    parts = _CODE.split(text)
    parts[::2] = [_CITATION.sub(link, part) for part in parts[::2]]
    return "".join(parts)

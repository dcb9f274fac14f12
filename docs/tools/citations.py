"""Citations as links: `[KHATTAK25]` in a page leads to its entry in the references."""

from __future__ import annotations

import posixpath
import re

# A key is capitals and digits, as in [KHATTAK25] or [CPG sec. 10.24.1]; existing links and
# code stay.
_CITATION = re.compile(r"(?<![\[\]])\[([A-Z][A-Z0-9]{2,})((?: [^\]\n]*)?)\](?![\](])")
_CODE = re.compile(r"(^```.*?^```[^\n]*$|``.*?``|`[^`\n]*`)", re.MULTILINE | re.DOTALL)


# A paragraph of HTML, such as a figure: Markdown in it would be shown as it is.
_HTML = re.compile(r"(^</?[A-Za-z].*?(?=\n\s*\n|\Z))", re.MULTILINE | re.DOTALL)


def linked(text: str, page: str = "index.md") -> str:
    """Return Markdown with its citations as links, relative to a page such as `api/core.md`."""
    target = posixpath.relpath("references.md", posixpath.dirname(page) or ".")
    # Of a link in HTML nobody takes the page's name for that of the file which is made of it.
    in_html = target.removesuffix(".md") + ".html"

    def link(match: re.Match[str]) -> str:
        key, rest = match.groups()
        return f"[[{key}{rest}]]({target}#{key})"

    def html_link(match: re.Match[str]) -> str:
        key, rest = match.groups()
        return f'<a href="{in_html}#{key}">[{key}{rest}]</a>'

    parts = _CODE.split(text)
    for number, part in enumerate(parts[::2]):
        pieces = _HTML.split(part)
        pieces[::2] = [_CITATION.sub(link, piece) for piece in pieces[::2]]
        pieces[1::2] = [_CITATION.sub(html_link, piece) for piece in pieces[1::2]]
        parts[2 * number] = "".join(pieces)
    return "".join(parts)

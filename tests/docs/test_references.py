"""Every citation has an entry in docs/references.md, and every entry is cited."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
REFERENCES = ROOT / "docs" / "references.md"

# A key is capitals and digits, as in [KHATTAK25] or [CPG sec. 10.24.1]; a link's text is none.
CITATION = re.compile(r"\[([A-Z][A-Z0-9]{2,})(?: [^\]\n]*)?\](?!\()")
ENTRY = re.compile(r"^([A-Z][A-Z0-9]{2,}) \{ #\1 \}$", re.MULTILINE)

# Words in brackets and capitals that are no citations.
NO_CITATIONS = {"OPTIONS", "COMMAND", "ARGS", "NEVER", "WORDS"}


def cited() -> dict[str, set[str]]:
    """Return every key that is cited, with the files that cite it."""
    files = [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "tcusim").rglob("*.py"),
        *(ROOT / "tutorials").glob("*.py"),
    ]
    keys: dict[str, set[str]] = {}
    for path in files:
        for key in CITATION.findall(path.read_text(encoding="utf-8")):
            keys.setdefault(key, set()).add(str(path.relative_to(ROOT)))
    return keys


def entries() -> list[str]:
    return ENTRY.findall(REFERENCES.read_text(encoding="utf-8"))


def test_every_citation_has_an_entry() -> None:
    known = {*entries(), *NO_CITATIONS}
    missing = {key: sorted(files) for key, files in cited().items() if key not in known}
    assert not missing, f"add these to docs/references.md: {missing}"


def test_every_entry_is_cited_and_given_once() -> None:
    keys = entries()
    assert len(keys) >= 7
    assert len(set(keys)) == len(keys)
    elsewhere = {
        key for key, files in cited().items() if files - {str(REFERENCES.relative_to(ROOT))}
    }
    assert set(keys) <= elsewhere

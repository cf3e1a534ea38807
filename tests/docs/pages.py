"""Read the pages of the docs: their code blocks, as one program with the line numbers of the page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
ARROW = "# → "
_FENCE = re.compile(r"^ *```(\w*)\s*$")


class Block(NamedTuple):
    """A fenced block: its language, the number of its first line, and its lines."""

    language: str
    start: int
    lines: list[str]


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[Block]:
    found: list[Block] = []
    inside: Block | None = None
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        fence = _FENCE.match(line)
        if inside is not None and fence is not None:
            found.append(inside)
            inside = None
        elif inside is not None:
            inside.lines.append(line)
        elif fence is not None:
            inside = Block(fence[1], number + 1, [])
    assert inside is None, f"{page}: a block is not closed"
    return found


def program(page: Path) -> str:
    """Return all Python blocks of the page as one program with the line numbers of the page (for tracebacks)."""
    lines: list[str] = []
    for block in blocks(page):
        if block.language == "python":
            lines += [""] * (block.start - 1 - len(lines))
            lines += block.lines
    return "\n".join(lines) + "\n" if lines else ""


def files(page: Path) -> dict[str, str]:
    """Return the files that the page shows: TOML blocks whose first line is a comment with the file's name."""
    shown = [block.lines for block in blocks(page) if block.language == "toml" and block.lines[0].startswith("# ")]
    return {lines[0].split()[1]: "\n".join(lines) + "\n" for lines in shown}


def expected_output(page: Path) -> list[str]:
    """Return the output that the page shows: `# → …` after a line, or a text block right after a Python block."""
    shown: list[str] = []
    before = ""
    for block in blocks(page):
        if block.language == "python":
            shown += [line.partition(ARROW)[2].strip() for line in block.lines if ARROW in line]
        elif block.language == "text" and before == "python":
            shown += block.lines
        before = block.language
    return shown

"""Print text that is safe for a terminal (escaped, cut to its width, in columns), or JSON."""

from __future__ import annotations

import json
import os
import shutil
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

import click

from onceward.administration.times import iso, moment, span
from onceward.keys.readable import escape

__all__ = [
    "as_json", "color_mode", "cut", "iso", "moment", "print_facts", "print_json", "print_table", "safe", "span",
    "width_of",
]  # fmt: skip

GAP = 2
MIN_WIDTH = 8  # minimum width of a long field, even in a narrow terminal
MAX_LINE_WIDTH = 1000  # columns; long enough to be wrapped, short enough not to flood the terminal


def as_json(output: str) -> bool:
    """Return whether to print JSON. With "auto", a terminal gets a table and a pipe gets JSON."""
    return output == "json" or (output == "auto" and not sys.stdout.isatty())


def print_json(document: Any) -> None:
    """Print JSON as ASCII only, so that no key can send an escape code through a pipe to a terminal."""
    click.echo(json.dumps(document, indent=2, default=repr))


def width_of(text: str) -> int:
    """Return how many columns the text needs in a terminal."""
    return sum(_width(char) for char in text)


def _width(char: str) -> int:
    if unicodedata.combining(char) or unicodedata.category(char) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1


def safe(text: str) -> str:
    """Escape control characters, which could move the cursor, change styles or reverse the direction of the text."""
    return escape(text.encode("utf-8", "backslashreplace").decode("utf-8"))


def cut(text: str, width: int) -> str:
    """Escape the text and cut it to `width` columns; a cut text ends in `…`. Only the beginning of it is processed."""
    text = safe(text[: 4 * width + 4])
    if width_of(text) <= width:
        return text
    kept, used = [], 1
    for char in text:
        used += _width(char)
        if used > width:
            break
        kept.append(char)
    return "".join(kept) + "…"


def print_table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], *, elastic: Sequence[int], whole: bool = False
) -> None:
    """Print a table. The elastic columns share the width that the other columns leave.

    `whole`: do not cut the last column, even if the terminal has to wrap it, because it says what to do.
    """
    terminal = shutil.get_terminal_size(fallback=(MAX_LINE_WIDTH, 24)).columns  # without a terminal, do not cut
    widths = [
        max(width_of(cell) for cell in (title, *(cut(row[n], terminal) for row in rows)))
        for n, title in enumerate(titles)
    ]
    room = terminal - sum(widths[n] for n in range(len(titles)) if n not in elastic) - GAP * (len(titles) - 1)
    for left, n in enumerate(sorted(elastic, key=lambda n: widths[n])):  # short columns leave their space to long ones
        widths[n] = min(widths[n], max(room // (len(elastic) - left), MIN_WIDTH))
        room -= widths[n]
    if whole:
        widths[-1] = MAX_LINE_WIDTH
    click.secho(_line(titles, widths), bold=True, color=color_mode())
    for row in rows:
        click.echo(_line(row, widths))


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (
        text + " " * (width - width_of(text) + GAP)
        for text, width in ((cut(cell, width), width) for cell, width in zip(cells, widths, strict=True))
    )
    return "".join(padded).rstrip()


def print_facts(pairs: Mapping[str, str]) -> None:
    """Print one name and value per line."""
    longest = max(map(len, pairs))
    for name, value in pairs.items():
        click.echo(f"{name:<{longest + GAP}}{cut(value, MAX_LINE_WIDTH)}".rstrip())


def color_mode() -> bool | None:
    """Return False if NO_COLOR disables styles; None lets click decide by the terminal."""
    return False if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" else None

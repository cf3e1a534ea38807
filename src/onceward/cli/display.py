"""Text that cannot break a terminal: escaped, cut to its width, laid out in columns. Or JSON."""

from __future__ import annotations

import json
import os
import shutil
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from onceward.keys.readable import escape
from onceward.protocol.duration import format_duration

GAP = 2
NARROWEST = 8  # columns that a long field keeps, however narrow the terminal is
LONGEST_FACT = 1000  # columns; a terminal wraps it, and a megabyte does not scroll by
SECOND, MILLISECOND = 1_000_000, 1000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def as_json(output: str) -> bool:
    """Whether this output is for a program. A person sees a table."""
    return output == "json" or (output == "auto" and not sys.stdout.isatty())


def print_json(document: Any) -> None:
    """ASCII only, so that no key can carry an escape code through a pipe to a terminal."""
    click.echo(json.dumps(document, indent=2, default=repr))


def width_of(text: str) -> int:
    """Columns that a terminal needs for it."""
    return sum(_width(char) for char in text)


def _width(char: str) -> int:
    if unicodedata.combining(char) or unicodedata.category(char) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1


def safe(text: str) -> str:
    """Nothing in it moves the cursor, changes a colour or turns the direction of reading."""
    return escape(text.encode("utf-8", "backslashreplace").decode("utf-8"))


def cut(text: str, width: int) -> str:
    """At most so many columns; a cut text ends in `…`. What lies far beyond the width is not even looked at."""
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


def table(titles: Sequence[str], rows: Sequence[Sequence[str]], *, elastic: Sequence[int], whole: bool = False) -> None:
    """Columns side by side. The elastic ones share what the others leave of the terminal's width.

    `whole`: the last column is shown in full, though the terminal has to wrap it: it says what to do.
    """
    terminal = shutil.get_terminal_size(fallback=(LONGEST_FACT, 24)).columns  # no terminal: nothing to fit into
    widths = [
        max(width_of(cell) for cell in (title, *(cut(row[n], terminal) for row in rows)))
        for n, title in enumerate(titles)
    ]
    room = terminal - sum(widths[n] for n in range(len(titles)) if n not in elastic) - GAP * (len(titles) - 1)
    for left, n in enumerate(sorted(elastic, key=lambda n: widths[n])):  # short ones leave their room to long ones
        widths[n] = min(widths[n], max(room // (len(elastic) - left), NARROWEST))
        room -= widths[n]
    if whole:
        widths[-1] = LONGEST_FACT
    click.secho(_line(titles, widths), bold=True, color=modes())
    for row in rows:
        click.echo(_line(row, widths))


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (
        text + " " * (width - width_of(text) + GAP)
        for text, width in ((cut(cell, width), width) for cell, width in zip(cells, widths, strict=True))
    )
    return "".join(padded).rstrip()


def facts(pairs: Mapping[str, str]) -> None:
    """One fact a line."""
    longest = max(map(len, pairs))
    for name, value in pairs.items():
        click.echo(f"{name:<{longest + GAP}}{cut(value, LONGEST_FACT)}".rstrip())


def modes() -> bool | None:
    """None lets click decide by the terminal; NO_COLOR forbids."""
    return False if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" else None


def moment(instant: int) -> str:
    """An instant of the store for people, to the second."""
    try:
        return f"{_EPOCH + timedelta(microseconds=instant):%Y-%m-%d %H:%M:%S} UTC"
    except OverflowError:
        return "beyond the calendar"


def iso(instant: int | None) -> str | None:
    """An instant of the store for programs."""
    if instant is None:
        return None
    try:
        return (_EPOCH + timedelta(microseconds=instant)).isoformat()
    except OverflowError:
        return None


def span(microseconds: int) -> str:
    """A duration for people: never negative, whole seconds beyond one."""
    step = SECOND if microseconds >= SECOND else MILLISECOND
    return format_duration(max(microseconds, 0) // step * step)

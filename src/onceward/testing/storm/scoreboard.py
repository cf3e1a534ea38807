"""The scoreboard: a table with one row per system, updated in place on a terminal; elsewhere, lines at intervals."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple, TextIO

from .run import Run
from .score import Score
from .terminal import BOLD, DIM, GREEN, RED, YELLOW, TerminalStyle

REDRAW_INTERVAL = 0.1  # seconds
LINE_INTERVAL = 2.0  # seconds between lines, if the output is not a terminal
BAR = 30
INDENT = "  "


class Column(NamedTuple):
    """One column: its titles, and the field it shows."""

    title: str
    short: tuple[str, str]
    field: str
    audited: bool = False


COLUMNS = (
    Column("delivered", ("deliv-", "ered"), "delivered"),
    Column("executed", ("exe-", "cuted"), "executed"),
    Column("replayed", ("re-", "played"), "replayed"),
    Column("stale", ("", "stale"), "stale"),
    Column("taken over", ("taken", "over"), "taken_over"),
    Column("killed", ("", "killed"), "killed"),
    Column("paused", ("", "paused"), "paused"),
    Column("effects", ("ef-", "fects"), "effects", audited=True),
    Column("duplicates", ("dupli-", "cates"), "duplicates", audited=True),
    Column("lost", ("", "lost"), "lost", audited=True),
)


class ScoreboardRow:
    """The figures of one system. Those of the audit are missing until the run has ended."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.score: Score | None = None
        self.run: Run | None = None
        self.trouble = ""

    def figure(self, column: Column) -> str:
        if not column.audited:
            return "" if self.score is None else str(getattr(self.score, column.field))
        if self.run is None:
            return ""
        found = getattr(self.run.audit, column.field)
        return str(found if isinstance(found, int) else len(found))

    @property
    def passed(self) -> bool | None:
        """None until the audit is done."""
        if self.trouble:
            return False
        return None if self.run is None else self.run.audit.passed


class Scoreboard:
    """Uses colors and updates in place only on a terminal that is wide enough. Respects NO_COLOR."""

    def __init__(self, systems: Sequence[str], out: TextIO | None = None) -> None:
        self._out = sys.stdout if out is None else out
        self.style = TerminalStyle(self._out)
        self._rows = {name: ScoreboardRow(name) for name in systems}
        self._names = max([len("submissions"), *map(len, systems)])
        self._drawn_at = 0.0
        self._lines = 0
        width = shutil.get_terminal_size().columns
        self._wide = width > self._width([len(column.title) for column in COLUMNS])
        fits = self._wide or width >= self._width([max(map(len, column.short)) for column in COLUMNS])
        self._rewrites = self._out.isatty() and os.environ.get("TERM") != "dumb" and fits

    def _width(self, columns: list[int]) -> int:
        return len(INDENT) + 2 + self._names + sum(columns) + len(columns)

    def show(self, name: str, score: Score) -> None:
        """Update the figures, and draw them if the interval has passed."""
        self._rows[name].score = score
        now = time.monotonic()
        if (self._rewrites or score.delivered) and now - self._drawn_at >= (
            REDRAW_INTERVAL if self._rewrites else LINE_INTERVAL
        ):
            self._draw(self._rows[name])

    def finish(self, name: str, run: Run) -> None:
        """Show the result of the audit."""
        self._rows[name].score, self._rows[name].run = run.score, run
        self._draw(self._rows[name])

    def give_up(self, name: str, why: str) -> None:
        """Show that the run could not be finished."""
        self._rows[name].trouble = why.splitlines()[0]
        self._draw(self._rows[name])

    def _draw(self, current: ScoreboardRow) -> None:
        self._drawn_at = time.monotonic()
        if self._rewrites:
            block = self._block(current)
            up = f"\x1b[{self._lines}F" if self._lines else ""
            self._out.write(up + "".join(f"\x1b[2K{line}\n" for line in block))
            self._lines = len(block)
        else:
            self._out.write(self._line(current) + "\n")
        self._out.flush()

    def _line(self, row: ScoreboardRow) -> str:
        parts = [f"{column.title} {figure}" for column in COLUMNS if (figure := row.figure(column))]
        state = {None: f"{row.score.progress:4.0%}" if row.score else "", True: "PASSED", False: "FAILED"}[row.passed]
        return f"{INDENT}{row.name} {state}: {row.trouble or ', '.join(parts)}"

    def _block(self, current: ScoreboardRow) -> list[str]:
        head = [[column.title] if self._wide else list(column.short) for column in COLUMNS]
        widths = [max(map(len, titles)) for titles in head]
        start = " " * (len(INDENT) + 2 + self._names)
        titles = [
            start + "".join(f" {cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
            for cells in zip(*head, strict=True)
        ]
        return [
            *(self.style(title, DIM) for title in titles),
            *(self._table_row(row, widths, current) for row in self._rows.values()),
            self._progress(current),
        ]

    def _table_row(self, row: ScoreboardRow, widths: list[int], current: ScoreboardRow) -> str:
        mark, mode = {None: ("·", DIM), True: ("✓", GREEN), False: ("✗", RED)}[row.passed]
        if row.passed is None and row is current:
            mark, mode = "▶", YELLOW
        cells = "".join(
            self._cell(row, column, f" {row.figure(column) or '·':>{width}}")
            for column, width in zip(COLUMNS, widths, strict=True)
        )
        name = f"{row.name:<{self._names}}"
        return f"{INDENT}{self.style(mark, mode)} {self.style(name, BOLD if row.score else DIM)}{cells}"

    def _cell(self, row: ScoreboardRow, column: Column, text: str) -> str:
        if not row.figure(column) or (row.figure(column) == "0" and not column.audited):
            return self.style(text, DIM)
        if column.field in ("duplicates", "lost"):
            return self.style(text, GREEN if row.figure(column) == "0" else RED)
        return self.style(text, BOLD) if column.audited else text

    def _progress(self, row: ScoreboardRow) -> str:
        score = row.score
        if row.passed is not None or score is None:
            return ""
        full = int(BAR * score.progress)
        bar = self.style("█" * full, GREEN) + self.style("░" * (BAR - full), DIM)
        return f"{INDENT}{bar} {score.progress:4.0%} {self.style(f'{row.name}: {_phase(score)}', DIM)}"


def _phase(score: Score) -> str:
    if not score.delivered:
        return "workers are starting"
    if score.progress >= 1:
        return "finishing unacknowledged deliveries"
    return f"{score.acknowledged / max(score.seconds, 0.001):.0f} deliveries/s"

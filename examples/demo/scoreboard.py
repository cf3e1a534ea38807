"""The scoreboard: one block that is rewritten on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter

REDRAWN = 0.1  # seconds
REPEATED = 2.0  # seconds between plain lines, where nothing can be rewritten
BAR = 32

GREEN, RED, BOLD, DIM = "32", "31", "1", "2"


class Scoreboard:
    """What happened so far. Colours and rewriting only on a terminal; NO_COLOR is honoured."""

    def __init__(self, deliveries: int, kills: int) -> None:
        self._deliveries = deliveries
        self._kills = kills
        self._started = time.monotonic()
        self._shown = 0.0
        self._lines = 0
        smart = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        self._rewrites = smart
        self._colours = smart and not os.environ.get("NO_COLOR")

    def paint(self, text: str, colour: str) -> str:
        return f"\x1b[{colour}m{text}\x1b[0m" if self._colours else text

    def show(self, counts: Counter[str], *, last: bool = False) -> None:
        now = time.monotonic()
        if not last and now - self._shown < (REDRAWN if self._rewrites else REPEATED):
            return
        self._shown = now
        if self._rewrites:
            block = self._block(counts, now)
            up = f"\x1b[{self._lines}F" if self._lines else ""
            sys.stdout.write(up + "".join(f"\x1b[2K{line}\n" for line in block))
            self._lines = len(block)
        else:
            sys.stdout.write(self._line(counts, now) + "\n")
        sys.stdout.flush()

    def _rate(self, counts: Counter[str], now: float) -> float:
        return counts["acknowledged"] / max(now - self._started, 0.001)

    def _line(self, counts: Counter[str], now: float) -> str:
        parts = [f"{name} {counts[name]}" for name in ("executed", "replayed", "running", "taken over", "kills")]
        done = f"{counts['acknowledged']}/{self._deliveries} deliveries"
        return f"  {done}: {', '.join(parts)}, {self._rate(counts, now):.0f}/s"

    def _block(self, counts: Counter[str], now: float) -> list[str]:
        done = counts["acknowledged"]
        full = BAR * done // self._deliveries
        bar = self.paint("█" * full, GREEN) + self.paint("░" * (BAR - full), DIM)
        rows = [
            ("executed", counts["executed"], "charged now, and the worker lived to say so"),
            ("replayed", counts["replayed"], "charged before: nothing was done again"),
            ("running", counts["running"], "another worker was at it: given back to the queue"),
            ("taken over", counts["taken over"], "the lease of a dead worker lapsed, a live one finished"),
            ("failed", counts["failed"], "the store was too busy or the lease was lost: given back"),
            ("kills", counts["kills"], f"SIGKILL at random instants, {self._kills} planned"),
        ]
        return [
            f"  {bar} {done:>6}/{self._deliveries} deliveries  {self._rate(counts, now):5.0f}/s",
            *(f"  {name:<11}{self.paint(f'{count:>6}', BOLD)}  {self.paint(what, DIM)}" for name, count, what in rows),
        ]

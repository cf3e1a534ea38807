"""What was counted, for people: a line a scope, with a small chart of its hours."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import Any

import click

from onceward.observe.figures import tally
from onceward.protocol.counters import COUNTER_NAMES, HOUR, OUTCOMES, CounterTotals, replay_rate
from onceward.runtime.bridge import run

from . import display
from .open_store import opened
from .program import wants_json

BARS = "▁▂▃▄▅▆▇█"
WIDEST, NARROWEST = 48, 8  # bars; more hours share one
LONGEST_SCOPE = 24  # characters that the name of a scope keeps beside a chart
FIRST = ("executed", "replayed", "failed")
"""Columns that are always shown; the others only where they have anything to tell."""

NOTHING = "Nothing was counted. Programs count if they say so: Once(…, counters=True)."


def show(url: str, span: int, scope: str | None) -> None:
    with opened(url) as store:
        found = run(tally(store, span))
    scopes = [one for one in found.scopes if scope in (None, one)]
    if wants_json():
        display.print_json(document(found, scopes))
        return
    if not scopes:
        click.echo(NOTHING, err=True)
        return
    names = [name for name in COUNTER_NAMES if name in FIRST or any(found.total(name, one) for one in scopes)]
    titles = ("SCOPE", *(name.upper().replace("_", " ") for name in names), "REPLAY RATE", "OVER TIME")
    shown: list[str | None] = [*scopes, None] if scope is None else [*scopes]
    rows = [[one or "all", *_figures(found, names, one)] for one in shown]
    most = room(titles, rows)
    charts = [chart(found.series(OUTCOMES, one), most) for one in shown]
    display.table(titles, [[*row, drawn] for row, drawn in zip(rows, charts, strict=True)], elastic=(0,))
    hours = found.latest - found.since + 1
    step = grain(hours, most)
    click.echo(f"{display.moment(found.since * HOUR)} to now: {hours} h, {step} h a bar, the last not over yet.")


def room(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """How many bars fit beside the figures. Names of scopes can be cut, down to a point."""
    columns = zip(*rows, strict=True)
    widths = [max(map(len, (title, *cells))) for title, cells in zip(titles, columns, strict=False)]
    used = min(widths[0], LONGEST_SCOPE) + sum(widths[1:]) + display.GAP * len(widths)
    return min(WIDEST, max(NARROWEST, shutil.get_terminal_size().columns - used))


def _figures(found: CounterTotals, names: Sequence[str], scope: str | None) -> list[str]:
    return [*(str(found.total(name, scope)) for name in names), _percentage(rate_of(found, scope))]


def rate_of(found: CounterTotals, scope: str | None) -> float | None:
    executed = found.total("executed", scope) + found.total("applied", scope)
    return replay_rate(found.total("replayed", scope), executed)


def _percentage(rate: float | None) -> str:
    return "" if rate is None else f"{rate:.1%}"


def grain(hours: int, most: int = WIDEST) -> int:
    """How many hours one bar stands for."""
    return max(1, -(-hours // most))


def chart(series: Sequence[int], most: int = WIDEST) -> str:
    """Bars beside each other, the highest as high as can be. An hour without anything is a gap."""
    step = grain(len(series), most)
    sums = [sum(series[max(end - step, 0) : end]) for end in range(len(series), 0, -step)][::-1]
    highest = max(sums, default=0)
    return "".join(BARS[(number * len(BARS) - 1) // highest] if number else " " for number in sums).rstrip()


def document(found: CounterTotals, scopes: Sequence[str]) -> dict[str, Any]:
    """The same for programs: sums, and each hour that had anything."""
    return {
        "since": display.iso(found.since * HOUR),
        "until": display.iso(found.now),
        "scopes": {
            scope: {
                **{name: found.total(name, scope) for name in COUNTER_NAMES},
                "replay_rate": rate_of(found, scope),
                "hours": {
                    display.iso(hour * HOUR): counts[scope]
                    for hour, counts in sorted(found.hours.items())
                    if scope in counts
                },
            }
            for scope in scopes
        },
    }

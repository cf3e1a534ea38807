"""Print counters as a table: a row per scope, with a small chart of its hours."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import Any

import click

from onceward.observe.figures import read_totals
from onceward.protocol.counters import COUNTER_NAMES, HOUR, OUTCOMES, CounterTotals, replay_rate
from onceward.runtime.threads import run

from . import display
from .open_store import opened_store
from .program import wants_json

BARS = "▁▂▃▄▅▆▇█"
MAX_BARS, MIN_BARS = 48, 8  # bars; with more hours than bars, several hours share one
MAX_SCOPE_WIDTH = 24  # characters of a scope's name that stay visible beside a chart
ALWAYS_SHOWN = ("executed", "replayed", "failed")
"""Columns that are always shown; others only if they have a value."""

NOTHING_COUNTED = "Nothing was counted. To count, create the client with Once(…, counters=True)."


def show(url: str, span: int, scope: str | None) -> None:
    with opened_store(url) as store:
        found = run(read_totals(store, span))
    scopes = [one for one in found.scopes if scope in (None, one)]
    if wants_json():
        display.print_json(document(found, scopes))
        return
    if not scopes:
        click.echo(NOTHING_COUNTED, err=True)
        return
    names = [name for name in COUNTER_NAMES if name in ALWAYS_SHOWN or any(found.total(name, one) for one in scopes)]
    titles = ("SCOPE", *(name.upper().replace("_", " ") for name in names), "REPLAY RATE", "OVER TIME")
    shown: list[str | None] = [*scopes, None] if scope is None else [*scopes]
    rows = [[one or "all", *_figures(found, names, one)] for one in shown]
    most = chart_width(titles, rows)
    charts = [chart(found.series(OUTCOMES, one), most) for one in shown]
    display.print_table(titles, [[*row, drawn] for row, drawn in zip(rows, charts, strict=True)], elastic=(0,))
    hours = found.latest - found.since + 1
    step = hours_per_bar(hours, most)
    click.echo(f"{display.moment(found.since * HOUR)} to now: {hours} h, {step} h per bar; the last is incomplete.")


def chart_width(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """Return how many bars fit beside the figures. Names of scopes are cut to make room."""
    columns = zip(*rows, strict=True)
    widths = [max(map(len, (title, *cells))) for title, cells in zip(titles, columns, strict=False)]
    used = min(widths[0], MAX_SCOPE_WIDTH) + sum(widths[1:]) + display.GAP * len(widths)
    return min(MAX_BARS, max(MIN_BARS, shutil.get_terminal_size().columns - used))


def _figures(found: CounterTotals, names: Sequence[str], scope: str | None) -> list[str]:
    rate = scope_replay_rate(found, scope)
    return [*(str(found.total(name, scope)) for name in names), "" if rate is None else f"{rate:.1%}"]


def scope_replay_rate(found: CounterTotals, scope: str | None) -> float | None:
    executed = found.total("executed", scope) + found.total("applied", scope)
    return replay_rate(found.total("replayed", scope), executed)


def hours_per_bar(hours: int, most: int = MAX_BARS) -> int:
    """Return how many hours one bar represents."""
    return max(1, -(-hours // most))


def chart(series: Sequence[int], most: int = MAX_BARS) -> str:
    """Return a bar chart in one line, scaled to the highest bar. An hour without events is a space."""
    step = hours_per_bar(len(series), most)
    sums = [sum(series[max(end - step, 0) : end]) for end in range(len(series), 0, -step)][::-1]
    highest = max(sums, default=0)
    return "".join(BARS[(number * len(BARS) - 1) // highest] if number else " " for number in sums).rstrip()


def document(found: CounterTotals, scopes: Sequence[str]) -> dict[str, Any]:
    """Return the counters as JSON: totals, and each hour with events."""
    return {
        "since": display.iso(found.since * HOUR),
        "until": display.iso(found.now),
        "scopes": {
            scope: {
                **{name: found.total(name, scope) for name in COUNTER_NAMES},
                "replay_rate": scope_replay_rate(found, scope),
                "hours": {
                    display.iso(hour * HOUR): counts[scope]
                    for hour, counts in sorted(found.hours.items())
                    if scope in counts
                },
            }
            for scope in scopes
        },
    }

"""Output of the figures: a table for people, JSON for programs, Markdown for the page about speed."""

from __future__ import annotations

import platform
import sqlite3
from typing import Any

from bench.bars import BARS, WITHOUT_BAR, judge
from bench.case import Effort, Missing
from bench.paired import Comparison, Ratio

MICRO = 1_000_000
WIDTH = 56

Finding = Comparison | Missing

HEADER = f"{'':<{WIDTH}}{'Onceward':>11}{'against':>12}  {'ratio':<21}{'noise':<19}{'bar':<8}"

LEGEND = """
Times are microseconds per operation (for http: CPU time of the server). ratio: for a bar with ≥, how many times as
fast Onceward is; otherwise, how many times as long it takes; median [95 %]. noise: the other side compared with itself
by the same method, in wall-clock time; a ratio inside this interval means nothing."""


def row(name: str, found: Finding) -> str:
    if isinstance(found, Missing):
        return f"{name:<{WIDTH}}  {not_installed(found)}"
    bar = BARS.get(name)
    verdict = judge(bar, found) if bar else None
    ours, theirs = ((side.cpu if bar is not None and bar.of == "cpu" else side.wall) for side in (found.a, found.b))
    return (
        f"{name:<{WIDTH}}{ours * MICRO:>11,.1f}{theirs * MICRO:>12,.1f}  "
        f"{shown(verdict.ratio if verdict else found.wall):<20} {shown(found.noise):<18} "
        f"{bar or 'no bar'!s:<7} {verdict or ''!s}"
    ).rstrip()


def shown(ratio: Ratio) -> str:
    return f"{ratio.median:.2f} [{ratio.low:.2f}–{ratio.high:.2f}]"


def markdown(found: dict[str, Finding]) -> str:
    """Return the rows of the tables in `docs/explain/speed.md`: the cases with a bar, then those without one."""
    with_bar = [_markdown_row(name, found[name]) for name in BARS if name in found]
    without = [_markdown_row(name, found[name]) for name in WITHOUT_BAR if name in found]
    return "\n".join([*with_bar, "", *without])


def _markdown_row(name: str, found: Finding) -> str:
    if isinstance(found, Missing):
        return f"| {name} | – | not installed | – |"
    bar = BARS.get(name)
    if bar is None:
        return f"| {name} | {_with_interval(found.wall)} |"
    verdict = judge(bar, found)
    met = "met" if verdict.met else f"**missed** by {verdict.miss - 1:.0%}"
    return f"| {name} | {bar} | {_with_interval(verdict.ratio)} | {met} |"


def _with_interval(ratio: Ratio) -> str:
    return f"{ratio.median:.2f} ({ratio.low:.2f}–{ratio.high:.2f})"


def not_installed(case: Missing) -> str:
    return f"{case.package} is not installed: make bench installs it"


def document(found: dict[str, Finding], effort: Effort, *, quick: bool) -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "machine": platform.machine(),
        "quick": quick,
        "callers": effort.callers,
        "keys": {"few": effort.few, "many": effort.many},
        "cases": {name: entry(name, one) for name, one in found.items()},
    }


def entry(name: str, found: Finding) -> dict[str, Any]:
    if isinstance(found, Missing):
        return {"missing": found.package}
    return {
        "blocks": found.blocks,
        "pairs": found.pairs,
        "onceward_us": {"wall": found.a.wall * MICRO, "cpu": found.a.cpu * MICRO},
        "against_us": {"wall": found.b.wall * MICRO, "cpu": found.b.cpu * MICRO},
        "ratio_wall": found.wall._asdict(),
        "ratio_cpu": found.cpu._asdict(),
        "noise_wall": found.noise._asdict(),
        "bar": _judged(name, found),
    }


def _judged(name: str, found: Comparison) -> dict[str, Any] | None:
    bar = BARS.get(name)
    if bar is None:
        return None
    verdict = judge(bar, found)
    return {
        **bar._asdict(),
        "ratio": verdict.ratio._asdict(),
        "met": verdict.met,
        "certain": verdict.certain,
        "miss": verdict.miss,
        "far": verdict.far,
    }

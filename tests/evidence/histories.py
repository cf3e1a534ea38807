"""Many histories: `python -m tests.evidence.histories [--seconds N] [--seed S] [--into FOLDER]`.

Repeats every run of `runs` with other seeds, each for its share of the time; then searches for the planted bugs.
Prints a table of what was recorded and checked. A history without an order is printed, and stored in the folder.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from onceward.testing.history import check
from onceward.testing.history.search import BUDGET
from tests.evidence.planted import (
    DETECTABLE,
    CachesLookupsWithoutLimit,
    Hunt,
    get_then_put_by_processes,
    get_then_put_by_threads,
    hunt,
    storms,
)
from tests.evidence.runs import RUNS, Run

SEEDS = 200
"""Histories after which a planted bug counts as not found."""

SIZE = 3.0
"""Size of one history relative to the tests: some thousands of operations on a few keys."""

FIGURES = ("histories", "operations", "keys", "overlapping", "no answer", "taken over", "kills", "seconds", "checking")


class Row(Struct):
    """One line of the table."""

    name: str
    figures: Counter[str]
    violations: list[str] = []

    def text(self) -> str:
        numbers = "".join(f"{round(self.figures[figure]):>12,}" for figure in FIGURES)
        return f"{self.name:<46}{numbers}  {'NOT LINEARIZABLE' if self.violations else 'ok'}"


def repeated(name: str, run: Run, *, seed: int, seconds: float, size: float, into: Path | None) -> Row:
    """Run at least once, then until the time is over or a violation is found."""
    row = Row(name, Counter())
    ends = time.monotonic() + seconds
    while not row.violations and (not row.figures or time.monotonic() < ends):
        folder = Path(tempfile.mkdtemp(prefix="onceward-history-"))
        began = time.monotonic()
        try:
            recorded = run(folder, seed, size)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        report = check(recorded.operations, budget=10 * BUDGET)  # many unanswered requests allow many orders
        row.figures.update(
            {
                "histories": 1,
                "operations": report.operations,
                "keys": report.keys,
                "overlapping": report.overlapping,
                "no answer": report.unanswered,
                "taken over": recorded.taken_over,
                "kills": recorded.kills,
            }
        )
        row.figures["seconds"] += time.monotonic() - began  # type: ignore[assignment] # a Counter may count in parts
        row.figures["checking"] += report.seconds  # type: ignore[assignment] # as above
        if not report.linearizable:
            row.violations.append(f"{name}, seed {seed}: {report}")
            if into is not None:
                into.mkdir(parents=True, exist_ok=True)
                (into / f"{name}, seed {seed}.json").write_bytes(msgspec.json.encode(recorded.operations))
        seed += 1
    return row


def hunts(folder: Path) -> Iterator[tuple[str, Hunt]]:
    for kind in (*DETECTABLE, CachesLookupsWithoutLimit):
        yield f"{kind.__name__}, threads", hunt(storms(kind, seeds=SEEDS))
    yield "get then put on a file, threads", hunt(get_then_put_by_threads(folder, seeds=SEEDS))
    yield "get then put on a file, processes", hunt(get_then_put_by_processes(folder, seeds=SEEDS))


class Soaked(Struct, frozen=True):
    """The recorded histories, and the search for planted bugs."""

    rows: list[Row]
    hunts: list[tuple[str, Hunt]]

    @property
    def total(self) -> Counter[str]:
        return sum((row.figures for row in self.rows), Counter())

    @property
    def without_an_order(self) -> list[str]:
        return [violation for row in self.rows for violation in row.violations]

    @property
    def missed(self) -> list[str]:
        return [name for name, hunted in self.hunts if not hunted.found]

    @property
    def passed(self) -> bool:
        return not self.without_an_order and not self.missed


def soak(seconds: float, seed: int, into: Path | None = None, size: float = SIZE) -> Soaked:
    """Run everything, and print the results as they come."""
    print(" " * 46 + "".join(f"{figure:>12}" for figure in FIGURES), flush=True)
    rows = []
    for name, run in RUNS.items():
        rows.append(repeated(name, run, seed=seed, seconds=seconds / len(RUNS), size=size, into=into))
        print(rows[-1].text(), *rows[-1].violations, sep="\n\n" if rows[-1].violations else "", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        found = list(hunts(Path(folder)))
    print("\nplanted bugs" + " " * 34 + "".join(f"{figure:>12}" for figure in FIGURES[:2]))
    for name, hunted in found:
        print(f"{name:<46}{hunted.histories:>12,}{hunted.operations:>12,}  {'found' if hunted.found else 'NOT FOUND'}")
    return Soaked(rows, found)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.evidence.histories", description="Record and check many histories."
    )
    parser.add_argument("--seconds", type=float, default=120.0, help="of recording and checking, default 120")
    parser.add_argument("--seed", type=int, default=1_000, help="of the first history of each kind, default 1000")
    parser.add_argument("--into", type=Path, help="folder for histories that have no order")
    chosen = parser.parse_args(arguments)
    done = soak(chosen.seconds, chosen.seed, chosen.into)
    total, hunted = done.total, len(done.hunts)
    print(
        f"\n{total['histories']:,} histories, {total['operations']:,} operations, {total['kills']:,} kills: "
        f"{len(done.without_an_order)} without an order; {hunted - len(done.missed)} of {hunted} planted bugs found"
    )
    return 0 if done.passed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

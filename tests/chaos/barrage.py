"""The long version of `test_every_kill.py`: `python -m tests.chaos.barrage [--small] [--minutes N] [--seed N]`.

First it kills at every call, in every way of working: also at each lock, with another process on the file, and with the
last write torn. Then, until the time is over, it also kills the recovery after a kill, once or twice, at random.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from tests.chaos.kill_harness import Kill, KillHarness, missing, scratch


class Way(NamedTuple):
    """One way of working, and its surroundings."""

    cycle: str
    fresh: bool = False
    neighbour: bool = False
    locks: bool = False
    torn: bool = False

    def harness(self, folder: Path) -> KillHarness:
        return KillHarness(folder, fresh=self.fresh, neighbour=self.neighbour, locks=self.locks)

    def __str__(self) -> str:
        return ", ".join([self.cycle, *(name for name in self._fields[1:] if getattr(self, name))])


WAYS = [
    Way("plain", fresh=True, locks=True),
    Way("plain", fresh=True, torn=True),
    *(
        way
        for cycle in ("plain", "parking", "within", "complete_in")
        for way in (Way(cycle, locks=True), Way(cycle, torn=True), Way(cycle, neighbour=True, locks=True))
    ),
]
AGAIN = [way for way in WAYS if not way.locks]
"""Ways in which the recovery is killed too. At locks, that would mostly repeat the same."""


class Report(NamedTuple):
    """The numbers of kills and deliveries, and everything that was wrong."""

    counts: Counter[str]
    wrong: list[str]


def barrage(*, small: bool = False, minutes: float = 10.0, seed: int = 1) -> Report:
    """Run all kills. Stop at the first way of working in which something is wrong."""
    reason = missing()
    if reason is not None:
        return Report(Counter(), [reason])
    report = Report(Counter(), [])
    for way in WAYS[-1:] if small else WAYS:
        _everywhere(way, report, most=20 if small else None)
        if report.wrong:
            return report
    dice, ends, rounds = random.Random(seed), time.monotonic() + minutes * 60, 0
    while not report.wrong and (time.monotonic() < ends if not small else not rounds):
        _again(dice.choice(AGAIN), report, dice, 10 if small else 100)
        rounds += 1
    return report


def _everywhere(way: Way, report: Report, most: int | None) -> None:
    with scratch() as folder, way.harness(folder) as harness:
        kills = harness.kills(way.cycle)[:most]
        for kill in kills:
            _run_with_kills(harness, way, (kill,), report)
        report.counts["torn writes"] += harness.torn
    print(f"  {way}: killed at {len(kills)} calls", flush=True)


def _again(way: Way, report: Report, dice: random.Random, times: int) -> None:
    with scratch() as folder, way.harness(folder) as harness:
        kills = harness.kills(way.cycle)
        for _ in range(times):
            _run_with_kills(harness, way, tuple(dice.choice(kills) for _ in range(dice.choice((2, 2, 3)))), report)
        report.counts["torn writes"] += harness.torn


def _run_with_kills(harness: KillHarness, way: Way, kills: tuple[Kill, ...], report: Report) -> None:
    killed_run = harness.run_with_kills(way.cycle, kills, torn=way.torn)
    report.counts["deliveries"] += len(killed_run.steps)
    killed = [kill for kill, step in zip(kills, killed_run.steps, strict=False) if step.killed]
    report.counts["kills"] += len(killed)
    if killed[:1] == [kills[0]]:  # later kills find other files, so they may hit another call
        report.counts[f"first kills at {kills[0].call} {kills[0].file}"] += 1
    report.counts[f"histories with {len(killed)} kills"] += 1
    where = ", ".join(map(str, kills))
    report.wrong.extend(f"{way}, killed at {where}: {what}" for what in killed_run.violations)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.barrage")
    parser.add_argument("--small", action="store_true", help="to see that it works")
    parser.add_argument("--minutes", type=float, default=10.0, help="of repeated kills, default 10")
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args(arguments)
    report = barrage(small=chosen.small, minutes=chosen.minutes, seed=chosen.seed)
    for what, count in sorted(report.counts.items()):
        print(f"{count:8} {what}")
    print("\n".join(report.wrong) or "nothing is wrong")
    return 1 if report.wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

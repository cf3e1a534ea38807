"""The demo: `python -m examples.demo [--quick] [--unguarded]`.

Worker processes on one SQLite file get every order about two and a half times, out of order, and are killed with
SIGKILL wherever they happen to be. In the end the real rows are counted.
"""

from __future__ import annotations

import argparse
import sys

from examples.demo.audit import Audit
from examples.demo.crew import Trouble
from examples.demo.run import Plan, Run, run
from examples.demo.scoreboard import BOLD, GREEN, RED, Scoreboard

FULL = Plan(deliveries=5_000, workers=4, kills=24)
QUICK = Plan(deliveries=600, workers=3, kills=6)
INTERRUPTED = 130  # the usual exit status after Ctrl-C


def parse(arguments: list[str]) -> Plan:
    parser = argparse.ArgumentParser(
        prog="python -m examples.demo", description="Workers are killed at random; then the real rows are counted."
    )
    parser.add_argument("--quick", action="store_true", help="fewer deliveries: a few seconds")
    parser.add_argument("--unguarded", action="store_true", help="the same traffic without Onceward: the audit fails")
    parser.add_argument("--deliveries", type=_at_least(1), help=f"default {FULL.deliveries}, five for two orders")
    parser.add_argument("--workers", type=_at_least(1), help=f"processes, default {FULL.workers}")
    parser.add_argument("--kills", type=_at_least(0), help=f"default {FULL.kills}")
    parser.add_argument("--seed", type=int, help="of the traffic and the kills, default 1")
    chosen = vars(parser.parse_args(arguments))
    plan = QUICK if chosen.pop("quick") else FULL
    return plan._replace(**{name: value for name, value in chosen.items() if value is not None})


class _at_least:  # noqa: N801 (reads as a word in the list of arguments)
    def __init__(self, least: int) -> None:
        self._least = least

    def __call__(self, text: str) -> int:
        number = int(text)
        if number < self._least:
            raise argparse.ArgumentTypeError(f"must be at least {self._least}")
        return number


def main(arguments: list[str]) -> int:
    plan = parse(arguments)
    print(
        f"{plan.deliveries} deliveries, {plan.workers} worker processes, {plan.kills} kills, seed {plan.seed}, "
        + ("WITHOUT Onceward: look, then charge" if plan.unguarded else "each order guarded by Onceward"),
        flush=True,
    )
    board = Scoreboard(plan.deliveries, plan.kills)
    try:
        done = run(plan, board.show)
    except Trouble as trouble:
        print(f"the demo could not be finished: {trouble}", file=sys.stderr)
        return 1
    board.show(done.counts, last=True)
    report(done.audit, board)
    print(ending(plan, done))
    return 0 if done.audit.passed else 1


def report(found: Audit, board: Scoreboard) -> None:
    print("\nAudit of the table `charges`, counted by plain sqlite3:")
    rows = [
        ("orders", found.orders, True),
        ("rows", found.rows, found.rows == found.orders),
        ("duplicates", found.duplicates, not found.duplicates),
        ("lost", found.lost, not found.lost),
        ("wrong amount", found.wrong, not found.wrong),
    ]
    for name, count, good in rows:
        print(f"  {name:<13}{board.paint(f'{count:>8}', BOLD if good else RED)}")
    print(f"  {'ordered':<13}{found.ordered / 100:>11.2f}")
    print(f"  {'charged':<13}{board.paint(f'{found.charged / 100:>11.2f}', BOLD if found.passed else RED)}")
    print(board.paint("  PASSED", GREEN) if found.passed else board.paint("  FAILED", RED))


def ending(plan: Plan, done: Run) -> str:
    found, counts = done.audit, done.counts
    if plan.unguarded and not found.passed:
        return (
            f"\nThis is the point: without Onceward there are {found.duplicates} charges too many, although every "
            "worker looked first.\nTwo workers can look at the same time.\n"
            "Next: `make demo` for the same traffic with Onceward."
        )
    if plan.unguarded:
        return "\nNothing went wrong this time, by luck. Try more deliveries, more workers or another --seed."
    if not found.passed:
        return "\nThis must not happen. Please report it, with the line on top (it has the seed)."
    silent = found.orders - counts["executed"]
    died = f"; {silent} had been charged by a worker that died before it could say so" if silent else ""
    return (
        f"\nShown in {done.took:.1f} s: {counts['kills']} workers were killed wherever they happened to be, "
        f"{counts['redelivered']} of them with a delivery in hand.\n"
        f"{counts['taken over']} orders were finished by a worker that took over{died}.\n"
        "Every order has one row all the same: the row and its record are committed in one transaction.\n"
        "Next: `make demo ARGS=--unguarded` for the same traffic without Onceward, "
        "`make demo ARGS=--seed=2` for other kills,\n"
        "      examples/demo/worker.py for the code, README.md for what is promised where."
    )


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        print("\ninterrupted: nothing was audited", file=sys.stderr)
        sys.exit(INTERRUPTED)

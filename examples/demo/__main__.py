"""The demo: `python -m examples.demo [--quick] [--unguarded]`.

Worker processes on one SQLite file get every order about two and a half times, out of order, and are killed with
SIGKILL wherever they happen to be. In the end the real rows are counted.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from examples.demo.audit import Audit, audit, create_table
from examples.demo.backlog import Backlog
from examples.demo.crew import Crew, Trouble, plan_kills
from examples.demo.scoreboard import BOLD, GREEN, RED, Scoreboard
from examples.demo.traffic import make_traffic

FULL = {"deliveries": 5_000, "workers": 4, "kills": 24}
QUICK = {"deliveries": 600, "workers": 3, "kills": 6}
INTERRUPTED = 130  # the usual exit status after Ctrl-C


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m examples.demo", description="Workers are killed at random; then the real rows are counted."
    )
    parser.add_argument("--quick", action="store_true", help="a few seconds instead of a little more")
    parser.add_argument("--unguarded", action="store_true", help="the same traffic without Onceward: the audit fails")
    parser.add_argument("--deliveries", type=_positive, help=f"default {FULL['deliveries']}, of 2 orders for 5")
    parser.add_argument("--workers", type=_positive, help=f"processes, default {FULL['workers']}")
    parser.add_argument("--kills", type=int, help=f"default {FULL['kills']}")
    parser.add_argument("--seed", type=int, default=1, help="of the traffic and the kills")
    chosen = parser.parse_args(arguments)
    for name, value in (QUICK if chosen.quick else FULL).items():
        if getattr(chosen, name) is None:
            setattr(chosen, name, value)
    return chosen


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def main(arguments: list[str]) -> int:
    chosen = parse(arguments)
    traffic = make_traffic(chosen.deliveries, chosen.seed)
    kind = "unguarded" if chosen.unguarded else "guarded"
    kills = plan_kills(chosen.kills, chosen.deliveries, chosen.workers, chosen.seed)
    print(
        f"{chosen.deliveries} deliveries of {len(traffic.orders)} orders, {chosen.workers} worker processes, "
        f"{chosen.kills} kills, seed {chosen.seed}, "
        + ("WITHOUT Onceward: look, then charge" if chosen.unguarded else "each order guarded by Onceward")
    )
    board = Scoreboard(chosen.deliveries, chosen.kills)
    with tempfile.TemporaryDirectory(prefix="onceward-demo-") as name:
        folder = Path(name)
        create_table(folder / "demo.db")
        crew = Crew(
            Backlog(traffic.deliveries), kills, workers=chosen.workers, kind=kind, folder=folder, seed=chosen.seed
        )
        started = time.monotonic()
        try:
            crew.run(board.show)
        except Trouble as trouble:
            print(f"the demo could not be finished: {trouble}", file=sys.stderr)
            return 1
        took = time.monotonic() - started
        board.show(crew.counts, last=True)
        found = audit(folder / "demo.db", traffic.orders)
    report(found, board)
    print(ending(found, crew.counts, took, unguarded=chosen.unguarded))
    return 0 if found.passed else 1


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


def ending(found: Audit, counts: Counter[str], took: float, *, unguarded: bool) -> str:
    if unguarded and not found.passed:
        return (
            f"\nThis is the point: without Onceward {found.duplicates} charges were made twice or more often, although "
            "every worker looked first.\nTwo workers can look at the same time.\n"
            "Next: `make demo` for the same traffic with Onceward."
        )
    if unguarded:
        return "\nNothing went wrong this time, by luck. Try more deliveries, more workers or another --seed."
    if not found.passed:
        return "\nThis must not happen. Please report it, with the line on top (it has the seed)."
    silent = found.orders - counts["executed"]
    died = f"; {silent} had been charged by a worker that died before it could say so" if silent else ""
    return (
        f"\nShown in {took:.1f} s: {counts['kills']} workers were killed wherever they happened to be, "
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

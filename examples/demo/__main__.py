"""The demo: `python -m examples.demo [--quick] [--unguarded] [--system fleet] [--seconds 20] [--store URL]`.

Runs a storm on every example system, one after the other. Each event is delivered about two and a half times, out of
order, to several worker processes. Workers are killed with SIGKILL, or stopped for longer than their lease, at random
points. Then the effects are audited. With `--console`, the records stay open in a browser.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from examples.demo.ending import ending, opening
from examples.demo.systems import SYSTEMS, DemoSystem
from onceward.errors import ConfigurationError, OncewardError
from onceward.testing.storm import Plan, Run, Trouble, storm
from onceward.testing.storm.program import INTERRUPTED, sigterm_as_interrupt, store_error
from onceward.testing.storm.report import report
from onceward.testing.storm.scoreboard import Scoreboard

FULL, QUICK = 42.0, 5.0  # seconds of new events, divided among the systems; starting and finishing take extra time


class Options(argparse.Namespace):
    """The parsed command line."""

    quick: bool
    unguarded: bool
    system: list[str]
    seconds: float | None
    store: str
    seed: int
    console: bool
    port: int


def parse(arguments: list[str]) -> Options:
    parser = argparse.ArgumentParser(
        prog="python -m examples.demo", description="Run a storm on every example system, then audit the effects."
    )
    parser.add_argument("--quick", action="store_true", help=f"{QUICK:g} seconds of new events instead of {FULL:g}")
    parser.add_argument("--unguarded", action="store_true", help="the same work without Onceward: the audits fail")
    names = [entry.name for entry in SYSTEMS]
    parser.add_argument(
        "--system", action="append", choices=names, default=[], help="run only this system (may be repeated)"
    )
    parser.add_argument("--seconds", type=float, help="seconds of new events per system")
    parser.add_argument("--store", default="", help="URL of a store (default: embedded stores)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the traffic, the kills and the pauses (default 1)")
    parser.add_argument("--console", action="store_true", help="then show the records in a browser, until Ctrl-C")
    parser.add_argument("--port", type=int, default=8321, help="port of the console (default 8321; 0: any free one)")
    options = parser.parse_args(arguments, Options())
    if options.console and (options.store or options.unguarded):
        parser.error("--console shows the records of the embedded stores: leave out --store and --unguarded")
    return options


def make_plan(options: Options, entry: DemoSystem, systems: int, folder: str = "") -> Plan:
    """Return the plan for one of this many systems. With `folder`, its files stay there."""
    seconds = (QUICK if options.quick else FULL) / systems if options.seconds is None else options.seconds
    return Plan(
        seconds=seconds,
        workers=3 if options.quick else 4,
        kills=max(1, round(seconds * entry.kills)),
        seed=options.seed,
        store=options.store,
        guarded=not options.unguarded,
        folder=f"{folder}/{entry.name}" if folder else "",
    )


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    selected = [entry for entry in SYSTEMS if not options.system or entry.name in options.system]
    missing = {entry.name: why for entry in selected if (why := entry.missing())}
    systems = [entry for entry in selected if entry.name not in missing]
    for name, why in missing.items():
        print(f"{name} is skipped: {why}")
    if not systems:
        print("there is no system to run", file=sys.stderr)
        return 1
    unavailable = store_error(options.store)
    if unavailable is not None:
        print(f"cannot start the storm: {unavailable}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="onceward-demo-") as folder:
        try:
            kept = folder if options.console else ""
            plans = {entry: make_plan(options, entry, len(systems), kept) for entry in systems}
        except ConfigurationError as error:
            print(error, file=sys.stderr)
            return 2
        code = show_storms(plans, len(missing) if options.system or os.environ.get("CI") else 0)
        if options.console:
            from examples.demo.console import serve_console

            serve_console(Path(folder), [entry.name for entry in systems], options.port)
    return code


def show_storms(plans: dict[DemoSystem, Plan], missing: int) -> int:
    """Run the storms, print their audits, and return the exit code. `missing` systems should have run, too."""
    systems = list(plans)
    plan = plans[systems[0]]
    board = Scoreboard([entry.name for entry in systems])
    print(opening(systems, plan, board.style), flush=True)
    started = time.monotonic()
    with sigterm_as_interrupt():
        runs, is_incomplete = run_all(plans, board)
    print("\nAudits (effects counted without Onceward):")
    for run in runs:
        print(*(f"  {line}" for line in report(run, board.style)), sep="\n")
    print(ending(runs, plan, time.monotonic() - started, board.style))
    return 0 if not is_incomplete and not missing and all(run.audit.passed for run in runs) else 1


def run_all(plans: dict[DemoSystem, Plan], board: Scoreboard) -> tuple[list[Run], bool]:
    """Return the finished runs, and whether a run could not be finished."""
    runs: list[Run] = []
    troubles: list[str] = []
    for entry, plan in plans.items():
        try:
            run = storm(entry.path, plan, partial(board.show, entry.name))
        except (Trouble, OncewardError) as trouble:
            board.give_up(entry.name, str(trouble))
            troubles.append(f"{entry.name} could not be finished: {trouble}")
        else:
            board.finish(entry.name, run)
            runs.append(run)
    print(*troubles, sep="\n", file=sys.stderr, end="\n" if troubles else "")
    return runs, bool(troubles)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        print("\ninterrupted: nothing was audited", file=sys.stderr)
        sys.exit(INTERRUPTED)

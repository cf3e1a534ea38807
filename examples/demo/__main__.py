"""The demo: `python -m examples.demo [--quick] [--unguarded] [--system fleet] [--seconds 20] [--store URL]`.

Every system of the mission in a storm, one after the other: each event is delivered about two and a half times, out of
order, to several worker processes, which are killed with SIGKILL, or stopped for longer than their lease, wherever they
happen to be. Then the audits.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from functools import partial

from examples.demo.ending import ending, opening
from examples.demo.systems import SYSTEMS, Listed
from onceward.errors import ConfigurationError, OncewardError
from onceward.testing.storm import Plan, Run, Trouble, storm
from onceward.testing.storm.program import INTERRUPTED, ended_like_ctrl_c, store_away
from onceward.testing.storm.report import report
from onceward.testing.storm.scoreboard import Scoreboard

FULL, QUICK = 42.0, 5.0  # seconds of new events, shared by the systems; each begins and ends besides


class Chosen(argparse.Namespace):
    """What was asked for."""

    quick: bool
    unguarded: bool
    system: list[str]
    seconds: float | None
    store: str
    seed: int


def parse(arguments: list[str]) -> Chosen:
    parser = argparse.ArgumentParser(prog="python -m examples.demo", description="Storms of all systems, then audits.")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK:g} seconds of new events instead of {FULL:g}")
    parser.add_argument("--unguarded", action="store_true", help="the same work without Onceward: the audits fail")
    names = [listed.name for listed in SYSTEMS]
    parser.add_argument("--system", action="append", choices=names, default=[], help="only this one (may be repeated)")
    parser.add_argument("--seconds", type=float, help="of new events, for each system")
    parser.add_argument("--store", default="", help="URL of a store; default: embedded ones")
    parser.add_argument("--seed", type=int, default=1, help="of the traffic, the kills and the pauses, default 1")
    return parser.parse_args(arguments, Chosen())


def planned(chosen: Chosen, listed: Listed, systems: int) -> Plan:
    """What one of so many systems has to stand."""
    seconds = (QUICK if chosen.quick else FULL) / systems if chosen.seconds is None else chosen.seconds
    return Plan(
        seconds=seconds,
        workers=3 if chosen.quick else 4,
        kills=max(1, round(seconds * listed.kills)),
        seed=chosen.seed,
        store=chosen.store,
        guarded=not chosen.unguarded,
    )


def main(arguments: list[str]) -> int:
    chosen = parse(arguments)
    wanted = [listed for listed in SYSTEMS if not chosen.system or listed.name in chosen.system]
    missing = {listed.name: why for listed in wanted if (why := listed.missing())}
    systems = [listed for listed in wanted if listed.name not in missing]
    for name, why in missing.items():
        print(f"{name} is left out: {why}")
    if not systems:
        print("there is no system to run", file=sys.stderr)
        return 1
    away = store_away(chosen.store)
    if away is not None:
        print(f"there is no storm: {away}", file=sys.stderr)
        return 1
    try:
        plans = {listed: planned(chosen, listed, len(systems)) for listed in systems}
    except ConfigurationError as error:
        print(error, file=sys.stderr)
        return 2
    plan = plans[systems[0]]
    board = Scoreboard([listed.name for listed in systems])
    print(opening(systems, plan, board.paint), flush=True)
    started = time.monotonic()
    with ended_like_ctrl_c():
        runs, gave_up = run_all(plans, board)
    print("\nAudits, counted by plain means:")
    for run in runs:
        print(*(f"  {line}" for line in report(run, board.paint)), sep="\n")
    print(ending(runs, plan, time.monotonic() - started, board.paint))
    left_out = bool(missing) and bool(chosen.system or os.environ.get("CI"))
    return 0 if not gave_up and not left_out and all(run.audit.passed for run in runs) else 1


def run_all(plans: dict[Listed, Plan], board: Scoreboard) -> tuple[list[Run], bool]:
    """The runs that could be finished, and whether one could not."""
    runs: list[Run] = []
    troubles: list[str] = []
    for listed, plan in plans.items():
        try:
            run = storm(listed.place, plan, partial(board.show, listed.name))
        except (Trouble, OncewardError) as trouble:
            board.give_up(listed.name, str(trouble))
            troubles.append(f"{listed.name} could not be finished: {trouble}")
        else:
            board.finish(listed.name, run)
            runs.append(run)
    print(*troubles, sep="\n", file=sys.stderr, end="\n" if troubles else "")
    return runs, bool(troubles)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        print("\ninterrupted: nothing was audited", file=sys.stderr)
        sys.exit(INTERRUPTED)

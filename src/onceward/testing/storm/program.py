"""The command for a storm: `main("shop.storm:SYSTEM", sys.argv[1:])`."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from msgspec import json
from msgspec.structs import replace

from onceward.client.sync import Once
from onceward.errors import ConfigurationError, OncewardError, StoreUnavailable
from onceward.protocol.secrets import url_without_secrets

from .contract import System, Trouble
from .find_system import find_system
from .plan import Plan
from .report import report
from .run import Run, ignore_score, storm
from .scoreboard import Scoreboard

SECONDS = 10.0
INTERRUPTED = 130  # the usual exit status after Ctrl-C
MISUSED = 2  # as in argparse


def main(system: str, arguments: Sequence[str] = (), plan: Plan | None = None) -> int:
    """Run a storm on a system, show it live, and print the result of the audit.

    Args:
        system: Where the system is: `module:NAME`.
        arguments: Options of the command line, such as `["--seconds", "20"]`.
        plan: The defaults of these options.

    Returns:
        The exit status: 1 if the audit failed or the storm could not be finished, 2 if there is no such system.
    """
    try:
        found = find_system(system)
    except ConfigurationError as error:
        print(f"cannot start the storm: {error}", file=sys.stderr)
        return MISUSED
    wanted, as_json = _parse(found, arguments, Plan(seconds=SECONDS) if plan is None else plan)
    board = Scoreboard([found.name], sys.stderr if as_json else None)
    unavailable = store_error(wanted.store)
    if unavailable is not None:
        print(f"cannot start the storm: {unavailable}", file=sys.stderr)
        return 1
    try:
        with sigterm_as_interrupt():
            run = storm(system, wanted, ignore_score if as_json else lambda score: board.show(found.name, score))
    except (Trouble, OncewardError) as trouble:
        board.give_up(found.name, str(trouble))
        print(f"the storm could not be finished: {trouble}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted: nothing was audited", file=sys.stderr)
        return INTERRUPTED
    if as_json:
        masked = replace(run, plan=replace(run.plan, store=url_without_secrets(run.plan.store)))
        print(json.encode(masked).decode())
    else:
        board.finish(found.name, run)
        print()
        print(*report(run, board.style), _summary(run), sep="\n")
    return 0 if run.audit.passed else 1


def store_error(url: str) -> str | None:
    """Return why the store is unavailable, or None. Checked first, because the system would fail with a traceback."""
    if not url:
        return None
    try:
        with Once(url) as once:
            once.read("storm")
    except OncewardError as error:
        return str(error) if isinstance(error, StoreUnavailable) else None
    return None


@contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C, so that workers and stand-in servers end with the storm."""

    def end(_signal: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _summary(run: Run) -> str:
    score, plan = run.score, run.plan
    how = "" if plan.guarded else ", UNGUARDED"
    return (
        f"{run.events} events, delivered {score.delivered} times to {plan.workers} workers in {run.took:.1f} s{how}; "
        f"{score.killed} workers were killed, {score.redelivered} of them during a delivery; "
        f"{score.paused} were paused for longer than their lease; seed {plan.seed}"
    )


def _parse(system: System, arguments: Sequence[str], plan: Plan) -> tuple[Plan, bool]:
    parser = argparse.ArgumentParser(
        prog=f"storm of {system.name}",
        description="Deliver events twice and out of order, kill and pause workers, then count the real effects.",
    )
    parser.add_argument(
        "--seconds", type=float, help=f"how long to deliver new events before finishing (default {SECONDS:g})"
    )
    parser.add_argument("--deliveries", type=int, help="number of deliveries, instead of --seconds")
    parser.add_argument("--workers", type=int, help=f"processes (default {plan.workers})")
    parser.add_argument("--kills", type=int, help="default: one per second, or one per 50 deliveries")
    parser.add_argument("--pauses", type=int, help="default: one per five seconds, or one per 200 deliveries")
    parser.add_argument("--seed", type=int, help=f"seed of the traffic, the kills and the pauses (default {plan.seed})")
    parser.add_argument("--store", help="URL of a store (default: embedded)")
    parser.add_argument("--folder", help="keep the files of the run here")
    parser.add_argument("--unguarded", action="store_true", help="without Onceward: the audit is expected to fail")
    parser.add_argument("--json", action="store_true", help="print the plan, the score and the audit as JSON")
    chosen = {name: value for name, value in vars(parser.parse_args(arguments)).items() if value is not None}
    as_json = chosen.pop("json")
    if chosen.pop("unguarded"):
        chosen["guarded"] = False
    if "deliveries" in chosen or "seconds" in chosen:
        chosen = {"deliveries": None, "seconds": None, **chosen}
    try:
        return replace(plan, **chosen), as_json
    except ConfigurationError as error:
        parser.error(str(error))

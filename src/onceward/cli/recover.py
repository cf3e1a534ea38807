"""`onceward recover`: finish interrupted or failed work without a redelivery."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from onceward.client.counting import enable_counters
from onceward.client.sync import Once
from onceward.errors import ConfigurationError
from onceward.protocol.outcome import Executed, Failed, Replayed
from onceward.recovery.decision import Recovered, Recovery

from .exit_codes import Exit
from .program import OUTPUT, CommandError, current_settings, program
from .schedule import load_client, print_json_line, print_traceback, stop_on_signals
from .schedule import print_line as print_schedule_line
from .terminal_log import log_to_terminal

print_line = partial(print_schedule_line, command="recover")

MAX_SHOWN = 10
REPORTED = frozenset({"failed"})
"""Events that the results show."""

SUMMARY_TEXTS = (
    ("done", "done"),
    ("failed", "failed permanently, or undone"),
    ("again", "failed, to be retried later"),
    ("parked", "parked now"),
    ("unclear", "could not be tried, or have an unknown outcome"),
    ("running", "being processed by another worker"),
    ("waiting", "waiting for their next attempt"),
    ("waiting_for_a_person", "parked: an operator must resolve them (onceward ls --state PARKED, onceward sagas)"),
    ("needing_redelivery", "need a redelivery: their input was not stored"),
    ("unreadable", "could not be read: invalid records"),
)


@program.command("recover")
@click.argument("target", metavar="MODULE:APP")
@click.option("--once", "only_once", is_flag=True, help="Exit when nothing more is due.")
@click.option("--every", metavar="DURATION", default="5s", show_default=True, help="Time between two searches.")
@OUTPUT
def recover(*, target: str, only_once: bool, every: str) -> int:
    """Finish work whose worker died, that failed, or that is half done, without waiting for a redelivery.

    MODULE:APP names the client: `shop.jobs:once` is the `once` in `shop/jobs.py`. Operations declared with
    store_input=True, and sagas, run as if they had been delivered again. Other work is listed: it needs a redelivery.
    Start it on as many machines as you like: they share the work. It uses the client's own store. To recover async
    functions of a Once, pass `shop.jobs:once.aio`.

    SIGTERM or Ctrl-C: start nothing more, and finish what is running. Exit code 1, with --once: some work is left, or
    has failed permanently, and needs attention.

    \b
    Examples:
      onceward recover shop.jobs:once
      onceward recover shop.jobs:once --once -o json
    """
    once = load_client(target)
    enable_counters(once)
    as_json = current_settings()["output"].value == "json"
    log_to_terminal(REPORTED)
    with stop_on_signals(once):
        if not as_json:
            print_line(f"{once.store.name}, as {once.engine.owner.name}")
        try:
            total = run_worker(once, None if only_once else every, print_result_json if as_json else print_result)
        except ConfigurationError as error:
            raise CommandError(f"{target}: {error}", Exit.USAGE) from error
    if as_json:
        print_json_line({"event": "summary", **summary(total)})
    else:
        print_summary(total)
    return Exit.ATTENTION if only_once and total.needs_attention else Exit.OK


def run_worker(once: Any, every: str | None, on_result: Any) -> Recovery:
    if isinstance(once, Once):
        try:
            return once.recover(every=every, on_result=on_result)
        finally:
            once.close()
    from onceward.client.aio import recover_until_stopped

    return recover_until_stopped(once, every, on_result)


def result_text(recovered: Recovered) -> str:
    outcome = recovered.outcome
    if outcome is None:
        return f"not tried: {recovered.error}"
    if isinstance(outcome, Executed | Replayed):
        return f"done, attempt {outcome.attempt}"
    if isinstance(outcome, Failed):
        how = "failed permanently" if outcome.final else f"failed, attempt {outcome.attempt}"
        return f"{how}: {outcome.error_type}: {outcome.error}"
    return f"{outcome.kind}: {getattr(outcome, 'error', '')}"


def print_result(recovered: Recovered) -> None:
    print_line(f"{recovered.key} in {recovered.scope}: {result_text(recovered)}")
    print_traceback(recovered.outcome)


def print_result_json(recovered: Recovered) -> None:
    line: dict[str, Any] = {"event": "recovered", "key": recovered.key, "scope": recovered.scope}
    outcome = recovered.outcome
    line["error"] = recovered.error if outcome is None else getattr(outcome, "error", "")
    if outcome is not None:
        line |= {"outcome": outcome.kind, "attempt": outcome.attempt, "token": outcome.token}
    print_json_line(line)
    print_traceback(outcome)


def summary(total: Recovery) -> dict[str, Any]:
    counted = {name: getattr(total, name) for name, _ in SUMMARY_TEXTS}
    left = [{"key": one.key, "scope": one.scope, "state": one.state} for one in total.needs_redelivery]
    return {**counted, "needs_redelivery": left}


def print_summary(total: Recovery) -> None:
    for name, text in SUMMARY_TEXTS:
        number = getattr(total, name)
        if number or name == "done":
            print_line(f"{number:>6} {text}")
    for one in total.needs_redelivery[:MAX_SHOWN]:
        print_line(f"needs a redelivery: {one.key} in {one.scope} ({one.state})")
    more = total.needing_redelivery - MAX_SHOWN
    if more > 0:
        print_line(f"… and {more} more (-o json lists {len(total.needs_redelivery)})")

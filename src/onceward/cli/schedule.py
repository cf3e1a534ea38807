"""`onceward schedule`: run the schedules of an application in the foreground."""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from onceward.client.base import BaseClient
from onceward.client.counting import enable_counters
from onceward.client.sync import Once
from onceward.protocol.outcome import Executed, Failed, Replayed, Running
from onceward.schedules.definition import Missed, Ran, format_time
from onceward.schedules.slots import datetime_of

from . import display
from .display import safe
from .exit_codes import Exit
from .load_object import load_object
from .program import OUTPUT, CommandError, current_settings, program
from .terminal_log import log_to_terminal

SIGNALLED = 128  # as in shells
REPORTED_SEPARATELY = frozenset({"missed", "failed"})
"""Events that are not logged, because the printed results show them."""


@program.command("schedule")
@click.argument("target", metavar="MODULE:APP")
@click.option("--list", "only_list", is_flag=True, help="Only show the schedules and their next slots.")
@OUTPUT
def schedule(*, target: str, only_list: bool) -> int:
    """Run the schedules of an application until stopped.

    MODULE:APP names the client: `shop.jobs:once` is the `once` in `shop/jobs.py`, searched from the current directory.
    Start it on as many machines as you like: each slot runs once. It uses the client's own store.

    SIGTERM or Ctrl-C: start nothing more, finish what is running, exit code 0. A second signal: exit immediately;
    another runner takes over the running slots when their leases expire.

    \b
    Examples:
      onceward schedule shop.jobs:once
      onceward schedule shop.jobs:once --list
      onceward schedule -o json shop.jobs:once     one line of JSON per run
    """
    once = load_client(target)
    if not once.schedules:
        raise CommandError(f"{target} has no schedules → declare one: @once.schedule(…)", Exit.USAGE)
    as_json = current_settings()["output"].value == "json"
    if only_list:
        print_schedules(once, as_json=as_json)
        return Exit.OK
    if not as_json:
        names = ", ".join(sorted(once.schedules))
        print_line(f"{len(once.schedules)} on {once.store.name}, as {once.engine.owner.name}: {names}")
    enable_counters(once)
    log_to_terminal(REPORTED_SEPARATELY)
    with stop_on_signals(once):
        run_until_stopped(once, print_result_json if as_json else print_result)
    if not as_json:
        print_line("stopped")
    return Exit.OK


def load_client(target: str) -> Any:
    """Return the client that MODULE:APP names."""
    found = load_object(target)
    if not isinstance(found, BaseClient):
        raise CommandError(f"{target} is not a Once or AsyncOnce, but {type(found).__name__}", Exit.USAGE)
    return found


def run_until_stopped(once: Any, on_result: Any) -> None:
    if isinstance(once, Once):
        try:
            once.run_schedules(on_result=on_result)
        finally:
            once.close()
    else:
        from onceward.client.aio import run_until_stopped as run_async_until_stopped

        run_async_until_stopped(once, on_result)


@contextmanager
def stop_on_signals(once: Any) -> Iterator[None]:
    """Stop at the first signal, exit at the second. The handler must not use buffered streams."""

    def stop(number: int, _frame: object) -> None:
        name = signal.Signals(number).name
        if once.engine.stopping:
            os.write(2, f"onceward: {name} again: exiting immediately; leases will expire\n".encode())
            os._exit(SIGNALLED + number)
        once.stop()
        os.write(2, f"onceward: {name}: starting nothing more; waiting for what is running\n".encode())

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def print_result(result: Ran | Missed) -> None:
    if isinstance(result, Missed):
        print_line(f"{result.name}: {result}")
        return
    text = outcome_text(result)
    if text is not None:
        late = " (late)" if result.late else ""
        print_line(f"{result.name} {format_time(result.scheduled_at)}{late}: {text}")
        print_traceback(result.outcome)


def print_result_json(result: Ran | Missed) -> None:
    line: dict[str, object]
    if isinstance(result, Missed):
        line = {"schedule": result.name, "event": "missed", "count": result.count, "more": result.more}
        line |= {"first": format_time(result.first), "last": format_time(result.last)}
    elif outcome_text(result) is None:
        return
    else:
        outcome = result.outcome
        line = {"schedule": result.name, "event": outcome.reason, "scheduled_at": format_time(result.scheduled_at)}
        line |= {"late": result.late, "attempt": outcome.attempt, "token": outcome.token}
        if isinstance(outcome, Failed):
            line |= {"error": f"{outcome.error_type}: {outcome.error}"}
        print_traceback(result.outcome)
    print_json_line(line)


def outcome_text(result: Ran) -> str | None:
    """Return the outcome as text; None if another runner ran it, which reports it itself."""
    outcome = result.outcome
    if isinstance(outcome, Running | Replayed):
        return None
    attempt = f", attempt {outcome.attempt}" if outcome.attempt > 1 else ""
    if isinstance(outcome, Executed):
        return f"done{attempt}"
    if isinstance(outcome, Failed) and outcome.reason == "skipped":
        return f"skipped: {outcome.error}"
    if isinstance(outcome, Failed):
        return f"failed{attempt}: {outcome.error_type}: {outcome.error}" if outcome.exception is not None else None
    return f"{outcome.kind}{attempt}"


def print_traceback(outcome: object) -> None:
    """Print the traceback of an exception that the work raised in this process."""
    exception = getattr(outcome, "exception", None)
    if isinstance(exception, BaseException):
        traceback.print_exception(exception, file=sys.stderr)


def print_line(line: str, command: str = "schedule") -> None:
    click.echo(f"onceward {command}: {safe(line)}")
    sys.stdout.flush()


def print_json_line(line: dict[str, object]) -> None:
    click.echo(json.dumps(line))
    sys.stdout.flush()


def print_schedules(once: Any, *, as_json: bool) -> None:
    """Print the schedules, and when each is due next by this machine's clock."""
    import time

    rows = []
    for name, planned in sorted(once.schedules.items()):
        declared = planned.schedule
        following = declared.table.next(time.time_ns() // 1000)
        rows.append(
            {
                "name": name,
                "pattern": declared.table.pattern.text,
                "tz": declared.table.zone,
                "next": "" if following is None else format_time(datetime_of(following)),
                "overlap": declared.slots.overlap,
                "catch_up": declared.slots.catch_up,
            }
        )
    if as_json:
        display.print_json(rows)
    else:
        display.print_table(
            tuple(word.upper() for word in rows[0]), [tuple(row.values()) for row in rows], elastic=(0,)
        )

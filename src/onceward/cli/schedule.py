"""`onceward schedule`: run the schedules of an application in the foreground."""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from onceward.client.base import BaseClient, enable_counters
from onceward.client.sync import Once
from onceward.engine.events import Event, Level
from onceward.protocol.outcome import Executed, Failed, Replayed, Running
from onceward.schedules.definition import Missed, Ran, format_time
from onceward.schedules.slots import datetime_of

from . import display
from .display import safe
from .exit_codes import Exit
from .program import OUTPUT, CommandError, chosen, complain, program

SIGNALLED = 128  # as shells say it
TOLD_OTHERWISE = frozenset({"missed", "failed"})
"""Events that have a line of their own."""


@program.command("schedule")
@click.argument("target", metavar="MODULE:APP")
@click.option("--list", "only_list", is_flag=True, help="Only show the schedules and their next slots.")
@OUTPUT
def schedule(*, target: str, only_list: bool) -> int:
    """Run the schedules of an application until it is told to stop.

    MODULE:APP is where its client is: `shop.jobs:once` is the `once` of `shop/jobs.py`, looked for from the current
    folder on. Start it on as many machines as you like: each slot is run once. The store is the client's own.

    SIGTERM or Ctrl-C: nothing more is begun, what is running ends, exit code 0. A second one: it leaves at once, and
    what was running is taken over by another runner when its lease lapses.

    \b
    Examples:
      onceward schedule shop.jobs:once
      onceward schedule shop.jobs:once --list
      onceward schedule -o json shop.jobs:once     a line of JSON for every run
    """
    once = client_at(target)
    if not once.schedules:
        raise CommandError(f"{target} has no schedules → declare one: @once.schedule(…)", Exit.USAGE)
    as_json = chosen()["output"].value == "json"
    if only_list:
        show(once, as_json=as_json)
        return Exit.OK
    if not as_json:
        names = ", ".join(sorted(once.schedules))
        say(f"{len(once.schedules)} on {once.store.name}, as {once.engine.owner.name}: {names}")
    enable_counters(once)
    once.subscribe(warn)
    with signals(once):
        run_until_stopped(once, JsonLines() if as_json else Lines())
    if not as_json:
        say("stopped")
    return Exit.OK


def client_at(target: str) -> Any:
    """The client that MODULE:APP names."""
    module_name, _, path = target.partition(":")
    if not module_name or not path:
        raise CommandError(f"{target!r} is no MODULE:APP → such as shop.jobs:once", Exit.USAGE)
    sys.path.insert(0, os.getcwd())  # noqa: PTH109 (as `python -m` has it)
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as error:
        if not (isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{error.name}.")):
            traceback.print_exc()  # it is there, so the trouble is inside of it
        raise CommandError(f"{module_name} cannot be imported: {error!r}", Exit.USAGE) from error
    for name in path.split("."):
        if not hasattr(found, name):
            raise CommandError(f"{module_name} has no {path!r}", Exit.USAGE)
        found = getattr(found, name)
    if not isinstance(found, BaseClient):
        raise CommandError(f"{target} is no Once or AsyncOnce, but {type(found).__name__}", Exit.USAGE)
    return found


def run_until_stopped(once: Any, tell: Any) -> None:
    if isinstance(once, Once):
        try:
            once.run_schedules(on_result=tell)
        finally:
            once.close()
    else:
        from onceward.client.aio import run_until_stopped as run_on_a_loop

        run_on_a_loop(once, tell)


@contextmanager
def signals(once: Any) -> Iterator[None]:
    """The first one asks to stop, the second one leaves. A handler must not use buffered streams."""

    def stop(number: int, _frame: object) -> None:
        name = signal.Signals(number).name
        if once.engine.stopping:
            os.write(2, f"onceward: {name} again: leaving at once; leases lapse\n".encode())
            os._exit(SIGNALLED + number)
        once.stop()
        os.write(2, f"onceward: {name}: nothing more is begun; waiting for what is running\n".encode())

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Lines:
    """What happened, for people."""

    def __call__(self, told: Ran | Missed) -> None:
        if isinstance(told, Missed):
            say(f"{told.name}: {told}")
            return
        words = outcome_words(told)
        if words is not None:
            late = " (late)" if told.late else ""
            say(f"{told.name} {format_time(told.scheduled_at)}{late}: {words}")
            tell_error(told)


class JsonLines:
    """What happened, for programs."""

    def __call__(self, told: Ran | Missed) -> None:
        line: dict[str, object]
        if isinstance(told, Missed):
            line = {"schedule": told.name, "event": "missed", "count": told.count, "more": told.more}
            line |= {"first": format_time(told.first), "last": format_time(told.last)}
        elif outcome_words(told) is None:
            return
        else:
            outcome = told.outcome
            line = {"schedule": told.name, "event": outcome.reason, "scheduled_at": format_time(told.scheduled_at)}
            line |= {"late": told.late, "attempt": outcome.attempt, "token": outcome.token}
            if isinstance(outcome, Failed):
                line |= {"error": f"{outcome.error_type}: {outcome.error}"}
            tell_error(told)
        click.echo(json.dumps(line))
        sys.stdout.flush()


def outcome_words(told: Ran) -> str | None:
    """None: another runner did it, and tells it itself."""
    outcome = told.outcome
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


def tell_error(told: Ran) -> None:
    """The traceback of what the work raised here."""
    exception = getattr(told.outcome, "exception", None)
    if isinstance(exception, BaseException):
        traceback.print_exception(exception, file=sys.stderr)


def warn(event: Event) -> None:
    if event.level >= Level.WARNING and event.name not in TOLD_OTHERWISE:
        complain(f"{event.name} {event.key} [{event.scope}] {event.reason} {event.error}".rstrip())


def say(line: str) -> None:
    click.echo(f"onceward schedule: {safe(line)}")
    sys.stdout.flush()


def show(once: Any, *, as_json: bool) -> None:
    """The schedules, and when each comes next by this machine's clock."""
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
        display.table(tuple(word.upper() for word in rows[0]), [tuple(row.values()) for row in rows], elastic=(0,))

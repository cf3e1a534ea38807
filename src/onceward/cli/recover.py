"""`onceward recover`: finish what nobody delivers again."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from onceward.client.base import count_outcomes
from onceward.client.sync import Once
from onceward.errors import ConfigurationError
from onceward.protocol.outcome import Executed, Failed, Replayed
from onceward.recovery.decision import Recovered, Recovery

from .display import safe
from .exit_codes import Exit
from .program import OUTPUT, CommandError, chosen, program
from .schedule import client_at, signals

MOST_SHOWN = 10
WORDS = (
    ("done", "done"),
    ("failed", "failed for good, or undone"),
    ("again", "failed, and are tried again later"),
    ("parked", "parked now"),
    ("unclear", "could not be tried, or are unclear"),
    ("running", "running elsewhere"),
    ("waiting", "waiting for their next attempt"),
    ("waiting_for_a_person", "parked: a person must say (onceward ls --state PARKED, onceward sagas)"),
    ("needing_redelivery", "need a redelivery: their input was not kept"),
    ("unreadable", "could not be read: they hold what no Onceward writes"),
)


@program.command("recover")
@click.argument("target", metavar="MODULE:APP")
@click.option("--once", "only_once", is_flag=True, help="Stop when nothing is due any more.")
@click.option("--every", metavar="DURATION", default="5s", show_default=True, help="How long to rest between looks.")
@OUTPUT
def recover(*, target: str, only_once: bool, every: str) -> int:
    """Finish work whose worker died, that failed, or that is half done, without waiting for a redelivery.

    MODULE:APP is where the client is: `shop.jobs:once` is the `once` of `shop/jobs.py`. What it has declared with
    store_input=True, and its sagas, is run as if it had been delivered again. Other work is listed: it needs a
    redelivery. Start it on as many machines as you like: they share the work. The store is the client's own; async
    functions of an Once are recovered by `shop.jobs:once.aio`.

    SIGTERM or Ctrl-C: nothing more is begun, what is running ends. Exit code 1, with --once: something is left, or has
    failed for good, that somebody should look at.

    \b
    Examples:
      onceward recover shop.jobs:once
      onceward recover shop.jobs:once --once -o json
    """
    once = client_at(target)
    count_outcomes(once)
    as_json = chosen()["output"].value == "json"
    with signals(once):
        if not as_json:
            say(f"{once.store.name}, as {once.engine.owner.name}")
        try:
            total = run_worker(once, None if only_once else every, tell_json if as_json else tell)
        except ConfigurationError as error:
            raise CommandError(f"{target}: {error}", Exit.USAGE) from error
    if as_json:
        print_line({"event": "summary", **summary(total)})
    else:
        tell_summary(total)
    return Exit.ATTENTION if only_once and total.needs_attention else Exit.OK


def run_worker(once: Any, every: str | None, tell: Any) -> Recovery:
    if isinstance(once, Once):
        try:
            return once.recover(every=every, on_result=tell)
        finally:
            once.close()
    from onceward.client.aio import recover_until_stopped

    return recover_until_stopped(once, every, tell)


def words_of(told: Recovered) -> str:
    outcome = told.outcome
    if outcome is None:
        return f"not tried: {told.error}"
    if isinstance(outcome, Executed | Replayed):
        return f"done, attempt {outcome.attempt}"
    if isinstance(outcome, Failed):
        how = "failed for good" if outcome.final else f"failed, attempt {outcome.attempt}"
        return f"{how}: {outcome.error_type}: {outcome.error}"
    return f"{outcome.kind}: {getattr(outcome, 'error', '')}"


def tell(told: Recovered) -> None:
    say(f"{told.key} in {told.scope}: {words_of(told)}")


def tell_json(told: Recovered) -> None:
    line: dict[str, Any] = {"event": "recovered", "key": told.key, "scope": told.scope, "error": told.error}
    outcome = told.outcome
    if outcome is not None:
        line |= {"outcome": outcome.kind, "attempt": outcome.attempt, "token": outcome.token}
        line["error"] = getattr(outcome, "error", "")
    print_line(line)


def summary(total: Recovery) -> dict[str, Any]:
    counted = {name: getattr(total, name) for name, _ in WORDS}
    left = [{"key": one.key, "scope": one.scope, "state": one.state} for one in total.needs_redelivery]
    return {**counted, "needs_redelivery": left}


def tell_summary(total: Recovery) -> None:
    for name, words in WORDS:
        number = getattr(total, name)
        if number or name == "done":
            say(f"{number:>6} {words}")
    for one in total.needs_redelivery[:MOST_SHOWN]:
        say(f"needs a redelivery: {one.key} in {one.scope} ({one.state})")
    more = total.needing_redelivery - MOST_SHOWN
    if more > 0:
        say(f"… and {more} more (-o json lists {len(total.needs_redelivery)})")


def print_line(line: dict[str, Any]) -> None:
    click.echo(json.dumps(line))
    sys.stdout.flush()


def say(line: str) -> None:
    click.echo(f"onceward recover: {safe(line)}")
    sys.stdout.flush()

"""`onceward consume`: run the consumers of an application in the foreground."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from onceward.client.base import count_outcomes
from onceward.engine.events import Event, Level
from onceward.errors import OncewardError

from .display import safe
from .exit_codes import Exit
from .load_object import named
from .program import CommandError, complain, program

if TYPE_CHECKING:
    from onceward.queues import Consumer


@program.command("consume")
@click.argument("targets", metavar="MODULE:APP...", nargs=-1, required=True)
def consume(*, targets: tuple[str, ...]) -> int:
    """Work on the messages of queues until told to stop.

    MODULE:APP is where a consumer is: `shop.orders:app` is the `app` of `shop/orders.py`, looked for from the current
    folder on. Several are run side by side. Start it as often as you like, on as many machines: each message has its
    effect once.

    SIGTERM or Ctrl-C: no more messages are taken, those in hand are finished, exit code 0. A second one: it leaves at
    once, and what was in hand is delivered to somebody else.

    \b
    Examples:
      onceward consume shop.orders:app
      onceward consume shop.orders:app shop.refunds:app
    """
    from onceward.queues.process import run_all  # here and below, because the other commands need no event loop

    consumers = [consumer_at(target) for target in targets]
    for client in {id(one.client): one.client for one in consumers}.values():
        count_outcomes(client)
        client.subscribe(warn)
    for one in consumers:
        say(f"{one!r} on {one.client.store.name}")
    try:
        run_all(consumers, say)
    except OncewardError:
        raise
    except Exception as error:
        raise CommandError(f"{type(error).__name__}: {error}", Exit.ATTENTION) from error
    say("stopped")
    return Exit.OK


def consumer_at(target: str) -> Consumer:
    from onceward.queues import Consumer

    found: Any = named(target)
    if not isinstance(found, Consumer):
        raise CommandError(f"{target} is no Consumer, but {type(found).__name__}", Exit.USAGE)
    return found


def warn(event: Event) -> None:
    if event.level >= Level.WARNING:
        complain(f"{event.name} {event.key} [{event.scope}] {event.reason} {event.error}".rstrip())


def say(line: str) -> None:
    """Also from the handler of a signal: past the buffered streams."""
    os.write(1, f"onceward consume: {safe(line)}\n".encode())

"""`onceward consume`: run the consumers of an application in the foreground."""

from __future__ import annotations

import os
import traceback
from typing import TYPE_CHECKING, Any

import click

from onceward.client.counting import enable_counters
from onceward.errors import OncewardError

from .display import safe
from .exit_codes import Exit
from .load_object import load_object
from .program import CommandError, program
from .terminal_log import log_to_terminal

if TYPE_CHECKING:
    from onceward.queues import Consumer


@program.command("consume")
@click.argument("targets", metavar="MODULE:APP...", nargs=-1, required=True)
def consume(*, targets: tuple[str, ...]) -> int:
    """Process the messages of queues until stopped.

    MODULE:APP names a consumer: `shop.orders:app` is the `app` in `shop/orders.py`, searched from the current
    directory. Several consumers run concurrently. Start as many processes as you like, on as many machines: each
    message takes effect once.

    SIGTERM or Ctrl-C: take no more messages, finish those in progress, exit code 0. A second signal: exit immediately;
    the broker redelivers the messages in progress.

    Warnings and the tracebacks of failed work are printed on stderr. If your module configures logging, its handlers
    print them instead.

    \b
    Examples:
      onceward consume shop.orders:app
      onceward consume shop.orders:app shop.refunds:app
    """
    from onceward.queues.process import run_all  # imported here, because other commands need no event loop

    consumers = [load_consumer(target) for target in targets]
    for client in {id(one.client): one.client for one in consumers}.values():
        enable_counters(client)
    log_to_terminal()
    for one in consumers:
        print_line(f"{one!r} on {one.client.store.name}")
    try:
        run_all(consumers, print_line)
    except OncewardError:
        raise
    except Exception as error:
        traceback.print_exc()
        raise CommandError(f"{type(error).__name__}: {error}", Exit.ATTENTION) from error
    print_line("stopped")
    return Exit.OK


def load_consumer(target: str) -> Consumer:
    from onceward.queues import Consumer

    found: Any = load_object(target)
    if not isinstance(found, Consumer):
        raise CommandError(f"{target} is not a Consumer, but {type(found).__name__}", Exit.USAGE)
    return found


def print_line(line: str) -> None:
    """Print a line unbuffered, because signal handlers must not use buffered streams."""
    os.write(1, f"onceward consume: {safe(line)}\n".encode())

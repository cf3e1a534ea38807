"""Consumers as a process of their own: run until a signal says stop, then finish what is in hand."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Sequence

from onceward.client.aio import AsyncOnce
from onceward.client.sync import Once

from .consumer import Consumer

SIGNALLED = 128  # as shells say it
SIGNALS = (signal.SIGTERM, signal.SIGINT)


def run_all(consumers: Sequence[Consumer], tell: Callable[[str], None] = lambda _: None) -> None:
    """Run them side by side on an event loop of their own, in the main thread. Closes their clients at the end.

    SIGTERM or Ctrl-C: no more messages are taken, what is in hand is finished. A second one: it leaves at once, and
    what was in hand is delivered to somebody else.
    """
    try:
        asyncio.run(_main(consumers, tell))
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None  # the others were ended because of it


async def _main(consumers: Sequence[Consumer], tell: Callable[[str], None]) -> None:
    loop = asyncio.get_running_loop()
    told: list[signal.Signals] = []

    def stop(number: signal.Signals) -> None:
        if told:
            tell(f"{number.name} again: leaving at once")
            os._exit(SIGNALLED + number)
        told.append(number)
        tell(f"{number.name}: no more messages are taken; finishing what is in hand")
        for consumer in consumers:
            consumer.stop()

    for number in SIGNALS:
        loop.add_signal_handler(number, stop, number)
    try:
        async with asyncio.TaskGroup() as group:  # if one cannot go on, none does: whoever started us shall see it
            for consumer in consumers:
                group.create_task(consumer.consume())
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)
        for client in {id(one.client): one.client for one in consumers}.values():
            await _close(client)


async def _close(client: object) -> None:
    if isinstance(client, AsyncOnce):
        await client.close()
    elif isinstance(client, Once):
        await asyncio.to_thread(client.close)

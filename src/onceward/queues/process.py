"""Run consumers as a process: until SIGTERM or SIGINT, then finish the messages in flight."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Sequence

from onceward.client.aio import AsyncOnce
from onceward.client.sync import Once

from .consumer import Consumer

SIGNAL_EXIT_CODE = 128  # plus the number of the signal, as shells do
SIGNALS = (signal.SIGTERM, signal.SIGINT)


def run_all(consumers: Sequence[Consumer], report: Callable[[str], None] = lambda _: None) -> None:
    """Run the consumers concurrently on a new event loop in the main thread, then close their clients.

    On SIGTERM or Ctrl-C they take no more messages and finish those in flight. A second signal exits immediately, and
    the broker redelivers what was in flight.
    """
    try:
        asyncio.run(_run_until_signal(consumers, report))
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None  # the other consumers were cancelled because of it


async def _run_until_signal(consumers: Sequence[Consumer], report: Callable[[str], None]) -> None:
    loop = asyncio.get_running_loop()
    received: list[signal.Signals] = []

    def stop(number: signal.Signals) -> None:
        if received:
            report(f"{number.name} again: exiting immediately")
            os._exit(SIGNAL_EXIT_CODE + number)
        received.append(number)
        report(f"{number.name}: taking no more messages; finishing those in flight")
        for consumer in consumers:
            consumer.stop()

    for number in SIGNALS:
        loop.add_signal_handler(number, stop, number)
    try:
        async with asyncio.TaskGroup() as group:  # if one consumer fails, all stop, so that the supervisor notices
            for consumer in consumers:
                group.create_task(consumer.consume())
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)
        for client in {id(consumer.client): consumer.client for consumer in consumers}.values():
            await _close(client)


async def _close(client: object) -> None:
    if isinstance(client, AsyncOnce):
        await client.close()
    elif isinstance(client, Once):
        await asyncio.to_thread(client.close)

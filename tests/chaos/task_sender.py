"""Sends charges to the task queue that `TASK_QUEUE` names: `python -m tests.chaos.task_sender 1 2 1 2`."""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
from typing import Any

CENTS = 100


async def send_to_taskiq(example: Any, orders: list[int]) -> None:
    await example.broker.startup()
    for order in orders:
        await example.charge.kiq(order, CENTS * order)
    await example.broker.shutdown()


def main() -> None:
    orders = list(map(int, sys.argv[1:]))
    queue = os.environ["TASK_QUEUE"]
    example: Any = importlib.import_module(f"examples.tasks.with_{queue}")
    if queue == "taskiq":
        asyncio.run(send_to_taskiq(example, orders))
        return
    send = {"celery": "delay", "dramatiq": "send"}.get(queue)
    for order in orders:
        (getattr(example.charge, send) if send else example.enqueue)(order, CENTS * order)


if __name__ == "__main__":
    main()

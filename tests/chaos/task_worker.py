"""The module that workers of a task queue load in these tests: the example, with short timeouts, and made to hang.

`TASK_QUEUE` names the queue. If `HANGING_IN` names a folder, the worker hangs at these points, to be killed there:

    order 1   when its claim is granted, before anything is written
    order 2   when its charge and its record are committed, before the task returns

The queues notice a silent worker after a second at most, instead of minutes.
"""

from __future__ import annotations

import importlib
import os
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from examples.tasks.shop import connect
from onceward.observe import Event

WHERE = {"charge:1": "acquired", "charge:2": "completed"}

queue = os.environ["TASK_QUEUE"]
example: Any = importlib.import_module(f"examples.tasks.with_{queue}")
app: Any = getattr(example, "app", None)  # as Celery finds it
broker: Any = getattr(example, "broker", None)  # as Taskiq finds it

match queue:
    case "celery":
        app.conf.broker_transport_options = {"visibility_timeout": 1}
    case "dramatiq":
        broker.heartbeat_timeout = 1_000
        broker.maintenance_chance = 1_000_000  # with every command, instead of at random
    case "taskiq":
        broker.idle_timeout = 100  # it checks only when a new message has arrived
        broker.block = 100


def hang(event: Event) -> None:
    if WHERE.get(event.key) == event.name:
        hang_at(event.key)


def hang_at(key: str) -> None:
    (Path(os.environ["HANGING_IN"]) / key).touch()
    while True:
        time.sleep(60)


def unguarded(order_id: int, cents: int) -> None:
    """Do the work of the example without Onceward."""
    with closing(connect()) as shop:
        shop.execute("INSERT INTO charges VALUES (?, ?)", (order_id, cents))
    if "HANGING_IN" in os.environ:
        hang_at(f"charge:{order_id}")


if "UNGUARDED" in os.environ:
    broker.actors["charge"].fn = unguarded
elif "HANGING_IN" in os.environ:
    example.once.subscribe(hang)

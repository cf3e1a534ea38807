"""@once and the decorators of task queues: above it they work, below it they are refused."""

from __future__ import annotations

import pickle
from typing import Any

import dramatiq
import pytest
from celery import Celery
from dramatiq.brokers.stub import StubBroker
from redis import Redis
from rq.decorators import job
from taskiq import InMemoryBroker

from onceward import AsyncOnce, ConfigurationError, Executed, Once

celery = Celery("shop", broker="memory://", set_as_current=False)
stub = StubBroker()
taskiq = InMemoryBroker()
rq = job("default", connection=Redis(port=1))  # it is never called
DECORATORS: dict[str, Any] = {
    "celery": celery.task(shared=False),
    "dramatiq": dramatiq.actor(broker=stub),
    "rq": rq,
    "taskiq": taskiq.task,
}


@Once("memory://")(key="charge:{order_id}", name="charge")
def charge(order_id: int) -> str:
    return f"receipt {order_id}"


@pytest.mark.parametrize("queue", DECORATORS)
def test_once_above_the_decorator_of_a_task_is_refused(queue: str) -> None:
    def ship(order_id: int) -> None: ...

    ship.__name__ = ship.__qualname__ = f"ship_by_{queue}"
    task = DECORATORS[queue](ship)
    once = Once("memory://")
    with pytest.raises(ConfigurationError, match="above @once"):
        once(key="ship:{order_id}")(task)
    with pytest.raises(ConfigurationError, match="above @once"):
        AsyncOnce("memory://")(task)


def test_a_function_with_an_attribute_of_such_a_name_is_not_a_task() -> None:
    def ship(order_id: int) -> None: ...

    ship.delay = 5  # type: ignore[attr-defined]
    assert isinstance(Once("memory://")(ship).outcome(1), Executed)


def test_a_bound_task_of_celery_is_not_part_of_the_key() -> None:
    once = Once("memory://")

    @celery.task(bind=True, shared=False, name="bound")
    @once(key="charge:{order_id}", name="charge")
    def bound(self: Any, order_id: int) -> str:
        return f"{self.name} {order_id}"

    assert bound(7) == bound.apply(args=(7,)).get() == "bound 7"
    assert once.counts["completed"] == once.counts["skipped"] == 1


def test_a_guarded_function_travels_by_its_name_as_rq_sends_it() -> None:
    assert pickle.loads(pickle.dumps(charge)) is charge

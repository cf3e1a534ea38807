"""Charges with Taskiq: `taskiq worker examples.tasks.with_taskiq:broker`, then `await charge.kiq(7, 1999)`."""

from __future__ import annotations

from taskiq import SimpleRetryMiddleware
from taskiq_redis import RedisStreamBroker

from onceward import Once, current_claim

from .shop import BROKER, DATABASE, LEASE, WAIT, write_charge

# After this time without acknowledgement, in milliseconds, another worker gets the task, even if the first still runs.
broker = RedisStreamBroker(
    BROKER, consumer_id="0", idle_timeout=600_000, unacknowledged_lock_timeout=60
).with_middlewares(SimpleRetryMiddleware())
once = Once(f"sqlite:///{DATABASE}", lease=LEASE, wait=WAIT)


@broker.task(task_name="charge", retry_on_error=True, max_retries=20)
@once(key="charge:{order_id}", name="charge")
def charge(order_id: int, cents: int) -> str:
    return write_charge(current_claim(), order_id, cents)

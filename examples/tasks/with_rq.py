"""Charges with RQ: `rq worker --with-scheduler`, then `enqueue(7, 1999)` from anywhere."""

from __future__ import annotations

from redis import Redis
from rq import Queue, Retry
from rq.job import Job

from onceward import Once, current_claim

from .shop import BROKER, DATABASE, LEASE, WAIT, write_charge

queue = Queue(connection=Redis.from_url(BROKER))
once = Once(f"sqlite:///{DATABASE}", lease=LEASE, wait=WAIT)


@once(key="charge:{order_id}", name="charge")
def charge(order_id: int, cents: int) -> str:
    return write_charge(current_claim(), order_id, cents)


def enqueue(order_id: int, cents: int) -> Job:
    """Enqueue with a Retry: without it, the job of a killed worker is marked as failed and not run again."""
    return queue.enqueue(charge, order_id, cents, retry=Retry(max=20, interval=[0, 5, 30, 60]))

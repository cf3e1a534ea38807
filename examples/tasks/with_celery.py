"""Charges under Celery: `celery -A examples.tasks.with_celery worker`, then `charge.delay(7, 1999)` from anywhere."""

from __future__ import annotations

from celery import Celery

from onceward import AlreadyRunning, LeaseLost, Once, OutcomeUnknown, current_claim
from onceward.errors import StoreError

from .shop import BROKER, DATABASE, LEASE, WAIT, write_charge

AGAIN = (AlreadyRunning, LeaseLost, OutcomeUnknown, StoreError)  # whatever these mean, the next delivery will tell

app = Celery("shop", broker=BROKER)
app.conf.update(
    task_acks_late=True,  # acknowledged when it has ended, not when it is received
    task_reject_on_worker_lost=True,  # a killed child of the pool: back to the queue at once
    worker_prefetch_multiplier=1,  # what a dead worker had fetched waits for the visibility timeout
    broker_transport_options={"visibility_timeout": 3600},  # a killed worker: back to the queue after this, in seconds
    broker_connection_retry_on_startup=True,
)
once = Once(f"sqlite:///{DATABASE}", lease=LEASE, wait=WAIT)


@app.task(autoretry_for=AGAIN, retry_backoff=True, max_retries=20)
@once(key="charge:{order_id}", name="charge")
def charge(order_id: int, cents: int) -> str:
    return write_charge(current_claim(), order_id, cents)

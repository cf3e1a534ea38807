"""Charges with Celery: `celery -A examples.tasks.with_celery worker`, then `charge.delay(7, 1999)` from anywhere."""

from __future__ import annotations

from celery import Celery

from onceward import AlreadyRunning, LeaseLost, Once, OutcomeUnknown, current_claim
from onceward.errors import StoreError

from .shop import BROKER, DATABASE, LEASE, WAIT, write_charge

# The outcome is not known yet: the next delivery finds it out.
RETRYABLE = (AlreadyRunning, LeaseLost, OutcomeUnknown, StoreError)

app = Celery("shop", broker=BROKER)
app.conf.update(
    task_acks_late=True,  # acknowledge when the task has ended, not when it is received
    task_reject_on_worker_lost=True,  # requeue at once if a child of the pool is killed
    worker_prefetch_multiplier=1,  # prefetched tasks of a dead worker wait for the visibility timeout
    broker_transport_options={"visibility_timeout": 3600},  # seconds; requeue the tasks of a killed worker
    broker_connection_retry_on_startup=True,
)
once = Once(f"sqlite:///{DATABASE}", lease=LEASE, wait=WAIT)


@app.task(autoretry_for=RETRYABLE, retry_backoff=True, max_retries=20)
@once(key="charge:{order_id}", name="charge")
def charge(order_id: int, cents: int) -> str:
    return write_charge(current_claim(), order_id, cents)

"""Charges with Dramatiq: `dramatiq examples.tasks.with_dramatiq`, then `charge.send(7, 1999)` from anywhere."""

from __future__ import annotations

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from onceward import Once, OutcomeParked, PayloadMismatch, current_claim

from .shop import BROKER, DATABASE, LEASE, WAIT, write_charge

# Messages of a killed worker are requeued after this time without a heartbeat, in milliseconds.
broker = RedisBroker(url=BROKER, heartbeat_timeout=60_000)
dramatiq.set_broker(broker)
once = Once(f"sqlite:///{DATABASE}", lease=LEASE, wait=WAIT)


@dramatiq.actor(throws=(PayloadMismatch, OutcomeParked))  # a retry cannot succeed
@once(key="charge:{order_id}", name="charge")
def charge(order_id: int, cents: int) -> str:
    return write_charge(current_claim(), order_id, cents)

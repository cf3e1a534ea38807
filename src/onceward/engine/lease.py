"""A lease that the heartbeat renews: what the heartbeat needs to know about a claim, and what it reports back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from onceward.protocol.record import Record


class Lease(Protocol):
    """The lease of one ownership. The heartbeat sets `renew_at`, `ends`, `lost`, `overdue` and `inherited`."""

    record: Record
    nonce: bytes  # empty while no claim of ours can have been granted
    lease: int  # µs
    heartbeat: int | None  # µs between two renewals; None: a fifth of the lease
    renew_at: float
    ends: float  # on our own clock, counted from before the request was sent
    lost: bool  # the store reported another owner
    overdue: bool  # no answer by the end of the lease; may recover
    inherited: bool  # it belongs to the parent of this process
    on_lost: Callable[[], None] | None

    @property
    def is_settling(self) -> bool:
        """Whether its owner is settling it. If so, ignore a LOST answer to a renewal."""
        ...

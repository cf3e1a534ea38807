"""A lease that the heartbeat renews: what the heartbeat needs to know about a claim, and what it reports back."""

from __future__ import annotations

from collections.abc import Callable

from onceward.protocol.record import Record


class Lease:
    """The lease of one ownership. `ends` is on our own clock, counted from before the request was sent."""

    record: Record
    nonce = b""  # empty while no claim of ours can have been granted
    lease = 0  # µs
    heartbeat: int | None = None  # µs between two renewals; None: a fifth of the lease
    renew_at = 0.0
    ends = 0.0
    lost = False  # the store reported another owner
    overdue = False  # no answer by the end of the lease; may recover
    inherited = False  # it belongs to the parent of this process
    is_settling = False  # its owner is settling it, so a LOST answer to a renewal means nothing
    on_lost: Callable[[], None] | None = None

"""A lease in the keeper's care: what it has to know of a claim, and what it tells it."""

from __future__ import annotations

from collections.abc import Callable

from onceward.protocol.record import Record


class Lease:
    """Of one ownership. Its claim counts on `ends`, which is on our own clock, from before the store was asked."""

    record: Record
    nonce = b""
    lease = 0  # µs
    renew_at = 0.0
    ends = 0.0
    lost = False  # the store showed another owner
    overdue = False  # no answer by the end of the lease; may recover
    settling = False  # its owner is ending it: that it is gone then means nothing
    inherited = False  # it belongs to the parent of this process
    is_simple = (
        True  # it ends by its work's return alone: it is not settled, inherited, in a transaction or cancellable
    )
    on_lost: Callable[[], None] | None = None

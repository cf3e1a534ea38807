"""Track which offsets of a partition are done, in any order, and how far they may be committed. No I/O.

Kafka stores one number per partition: everything below it is done. So a message that is done before an earlier one
cannot be committed yet. After a crash, Kafka redelivers both.
"""

from __future__ import annotations


class Offsets:
    """The offsets of one partition, beginning with the first message received from it."""

    def __init__(self) -> None:
        self._open: set[int] = set()  # received and not done
        self._end = 0  # one past the last offset that was received
        self._committed = 0

    def mark_received(self, offset: int) -> None:
        if self._end == 0:
            self._committed = offset  # the start of this assignment: nothing of it is done yet
        self._open.add(offset)
        self._end = max(self._end, offset + 1)

    def mark_done(self, offset: int) -> None:
        self._open.discard(offset)

    @property
    def position(self) -> int:
        """The offset to commit: the first that is not done, or one past the last."""
        return min(self._open, default=self._end)

    @property
    def uncommitted(self) -> int:
        """How many offsets lie between the position and the last one received."""
        return self._end - self.position

    @property
    def needs_commit(self) -> bool:
        """Whether the position has advanced since the last commit."""
        return self.position > self._committed

    def mark_committed(self, position: int) -> None:
        self._committed = position

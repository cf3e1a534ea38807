"""What of a partition is done, in whatever order, and how far that may be committed. Pure.

Kafka keeps one number of each partition: everything below it is done. So a message that is done before an earlier one
waits for that one, and comes again together with it after a crash.
"""

from __future__ import annotations


class Offsets:
    """One partition, from the first message that was received of it."""

    def __init__(self) -> None:
        self._open: set[int] = set()  # received and not done
        self._end = 0  # behind the last one that was received
        self._committed = 0

    def received(self, offset: int) -> None:
        if self._end == 0:
            self._committed = offset  # where this assignment began: nothing of it is done yet
        self._open.add(offset)
        self._end = max(self._end, offset + 1)

    def done(self, offset: int) -> None:
        self._open.discard(offset)

    @property
    def position(self) -> int:
        """Where to begin after a crash: with the first that is not done, else behind the last one."""
        return min(self._open, default=self._end)

    @property
    def ahead(self) -> int:
        """How far the last one received is ahead of the first that is not done."""
        return self._end - self.position

    @property
    def moved(self) -> bool:
        """Whether the position has moved since the last commit."""
        return self.position > self._committed

    def committed(self, position: int) -> None:
        self._committed = position

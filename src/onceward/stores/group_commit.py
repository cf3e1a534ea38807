"""Group commit for a store: single requests share a call with whatever else arrives while one is under way."""

from __future__ import annotations

from collections.abc import Sequence

from onceward.protocol.requests import Answer, AnyRequest, AnySettlement, ClaimRequest, Renewal
from onceward.protocol.runtime import Answers, Batcher, Runtime

MIN_BATCH = 16
"""Requests that are worth a call of their own while another is under way: fewer wait for it."""


class GroupCommit:
    """Claims, renewals and settlements by way of `send`. Those that come alone wait in the lane; a batch goes as it is.

    What a store adds: `send`, and a call of `group` when it is opened.
    """

    _batcher: Batcher | None = None
    _grouped_in: Runtime | None = None

    def send(self, requests: Sequence[AnyRequest], timeout: float) -> Answers:
        """Requests of any kind, each for another key, in one call."""
        raise NotImplementedError

    def group(self, runtime: Runtime, *, max_in_flight: int = 1) -> None:
        """Many may find the store closed at the same time, and open it: all of them share one lane.

        `flights`: how many calls a crowd may have under way at once.
        """
        if self._batcher is None or self._grouped_in is not runtime:
            self._batcher, self._grouped_in = (
                runtime.batcher(self.send, max_in_flight=max_in_flight, min_batch=MIN_BATCH),
                runtime,
            )

    def grouped(self, requests: Sequence[AnyRequest], timeout: float) -> Answers:
        """On an event loop the lane's own future: a coroutine around it would be felt in every call."""
        batcher = self._batcher
        if batcher is None or len(requests) != 1:
            return self.send(requests, timeout)
        try:
            return batcher.ask(requests[0], timeout)  # type: ignore[return-value]  # it is awaited, and no more
        except RuntimeError:  # no loop runs here: it is asked now and awaited elsewhere
            return self._later(batcher, requests[0], timeout)

    def claim(self, requests: Sequence[ClaimRequest], *, timeout: float) -> Answers:
        return self.grouped(requests, timeout)

    def renew(self, renewals: Sequence[Renewal], *, timeout: float) -> Answers:
        return self.grouped(renewals, timeout)

    def settle(self, settlements: Sequence[AnySettlement], *, timeout: float) -> Answers:
        return self.grouped(settlements, timeout)

    async def _later(self, batcher: Batcher, request: AnyRequest, timeout: float) -> list[Answer]:
        return await batcher.ask(request, timeout)

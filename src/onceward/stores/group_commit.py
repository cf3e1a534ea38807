"""Group commit: single requests that arrive while a call is in flight share the next call."""

from __future__ import annotations

from collections.abc import Sequence

from onceward.protocol.requests import Answer, AnyRequest, AnySettlement, ClaimRequest, Renewal
from onceward.protocol.runtime import Answers, Batcher, Runtime


class GroupCommit:
    """Sends claims, renewals and settlements through `send`. Single requests are batched; a batch is sent as it is.

    A store implements `send` and calls `open_batcher` when it is opened.
    """

    _batcher: Batcher | None = None
    _batcher_runtime: Runtime | None = None

    def send(self, requests: Sequence[AnyRequest], timeout: float) -> Answers:
        """Send requests of any kind, at most one per key, in one call."""
        raise NotImplementedError

    def open_batcher(self, runtime: Runtime, *, max_in_flight: int = 1) -> None:
        """Create the batcher, once per runtime: callers that open the store at the same time share one batcher.

        `max_in_flight`: how many calls may be in flight at the same time under load.
        """
        if self._batcher is None or self._batcher_runtime is not runtime:
            self._batcher, self._batcher_runtime = (
                runtime.batcher(self.send, max_in_flight=max_in_flight),
                runtime,
            )

    def waiting_requests(self) -> int:
        """Return how many requests wait while a call is in flight."""
        return 0 if self._batcher is None else self._batcher.waiting()

    def send_batched(self, requests: Sequence[AnyRequest], timeout: float) -> Answers:
        """Send the requests; a single one goes through the batcher.

        On an event loop this returns the batcher's future itself: wrapping it in a coroutine would slow every call.
        """
        batcher = self._batcher
        if batcher is None or len(requests) != 1:
            return self.send(requests, timeout)
        try:
            return batcher.ask(requests[0], timeout)  # type: ignore[return-value]  # callers only await it
        except RuntimeError:  # no event loop is running here: the caller awaits the result elsewhere
            return self._send_when_awaited(batcher, requests[0], timeout)

    def claim(self, requests: Sequence[ClaimRequest], *, timeout: float) -> Answers:
        return self.send_batched(requests, timeout)

    def renew(self, renewals: Sequence[Renewal], *, timeout: float) -> Answers:
        return self.send_batched(renewals, timeout)

    def settle(self, settlements: Sequence[AnySettlement], *, timeout: float) -> Answers:
        return self.send_batched(settlements, timeout)

    async def _send_when_awaited(self, batcher: Batcher, request: AnyRequest, timeout: float) -> list[Answer]:
        return await batcher.ask(request, timeout)

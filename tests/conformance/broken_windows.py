"""Stores that are wrong about the ends of windows."""

from __future__ import annotations

from msgspec.structs import replace

from onceward.protocol.record import Record
from onceward.protocol.requests import AnySettlement, Complete, Fail, Validity
from tests.conformance.broken import Altered, Applied


class ZeroWindowNeverEnds(Altered):
    """Treats a window of zero as no window: it tests for truth instead of None."""

    def on_settle(self, record: Record | None, request: AnySettlement, now: int) -> Applied:
        if isinstance(request, Complete) and not request.validity.lasting and request.validity.until is None:
            request = replace(request, validity=Validity())
        return super().on_settle(record, request, now)


class CountsFromTheEnd(Altered):
    """Counts every window from completion, also those that should count from the claim."""

    def on_settle(self, record: Record | None, request: AnySettlement, now: int) -> Applied:
        if isinstance(request, Complete | Fail) and record is not None and request.validity.until is not None:
            length = request.validity.until - record.claimed_at
            request = replace(request, validity=Validity(lasting=max(length, 1)))
        return super().on_settle(record, request, now)

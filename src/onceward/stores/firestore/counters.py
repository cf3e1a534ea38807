"""Counters: one document per process and hour."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from onceward.protocol.counters import (
    COUNTS_RETENTION,
    HOUR,
    CounterRow,
    StoredCounts,
    decode_counts,
    encode_counts,
    oldest_kept_hour,
)

from . import errors as faults
from . import values
from .cache import Now
from .calls import FirestoreCalls, FoundDocument, stable_order, start_after, where
from .documents import Changes
from .errors import FirestoreError
from .values import Value, plain

PAGE: Final = 300
EXPIRED_PER_ROW: Final = 2
"""Old rows deleted per saved row: twice as many as are added."""

_HOUR: Final = ("hour",)


class FirestoreCounters:
    """The counter rows of one store."""

    def __init__(self, calls: FirestoreCalls, clock: Now) -> None:
        self._calls = calls
        self._clock = clock
        self._collection = calls.address.counts_in

    async def save(self, counter_rows: Sequence[CounterRow], deadline: float) -> int:
        """Save the rows: one read per row, and one write if it is newer than the stored one."""
        names = [
            (self._collection, f"{counter_row.process.hex()}-{counter_row.hour}") for counter_row in counter_rows
        ] or [(self._collection, "clock")]
        while True:
            found, now = await self._calls.get(names, deadline)
            now = self._clock() or now
            batch = [
                self._calls.build_write(*name, self._changes(counter_row), None if stored is None else stored.version)
                for name, counter_row, stored in (
                    (name, counter_row, found.get(name))
                    for name, counter_row in zip(names, counter_rows, strict=False)  # without rows there is one name
                )
                if stored is None or int(plain(stored.fields["number"])) < counter_row.number
            ]
            try:
                if batch:
                    await self._calls.commit(batch, deadline)
            except FirestoreError as error:
                if error.code not in faults.CONFLICT_CODES:
                    raise
                continue  # a newer row of this process was written first: read again
            if counter_rows:
                await self.expire(EXPIRED_PER_ROW * len(counter_rows), deadline, now)
            return now

    def _changes(self, counter_row: CounterRow) -> Changes:
        end = counter_row.hour * HOUR + COUNTS_RETENTION + 2 * HOUR
        return {
            ("process",): Value(bytes_value=counter_row.process),
            _HOUR: values.number(counter_row.hour),
            ("number",): values.number(counter_row.number),
            ("counts",): Value(bytes_value=encode_counts(counter_row.counts)),
            (self._calls.address.layout.expiry,): values.time(end),
        }

    async def read_counts(self, since: int, deadline: float) -> StoredCounts:
        now = self._clock()
        if now is None:
            _, now = await self._calls.get([(self._collection, "clock")], deadline)
        condition = where(_HOUR, "GREATER_THAN_OR_EQUAL", values.number(max(since, oldest_kept_hour(now))))
        counter_rows: list[CounterRow] = []
        more: dict[str, Any] = {}
        while True:
            page, _ = await self._calls.query(
                self._collection, deadline, where=condition, order_by=stable_order(_HOUR), limit=PAGE, **more
            )
            counter_rows += [_counter_row(one) for one in page]
            if len(page) < PAGE:
                return StoredCounts(counter_rows, now)
            last = Value(reference_value=self._calls.path(self._collection, page[-1].name))
            more = {"start_at": start_after(page[-1].fields["hour"], last)}

    async def expire(self, limit: int, deadline: float, now: int | None = None) -> int:
        now = self._clock() if now is None else now
        if now is None:
            _, now = await self._calls.get([(self._collection, "clock")], deadline)
        condition = where(_HOUR, "LESS_THAN", values.number(oldest_kept_hour(now)))
        old, _ = await self._calls.query(self._collection, deadline, where=condition, limit=min(limit, PAGE))
        if not old:
            return 0
        batch = [self._calls.build_delete(self._collection, one.name, one.version) for one in old]
        return sum(code == "OK" for code, _ in await self._calls.write_each(batch, deadline))


def _counter_row(one: FoundDocument) -> CounterRow:
    process, hour, number, counts = (plain(one.fields[name]) for name in ("process", "hour", "number", "counts"))
    return CounterRow(process, hour, number, decode_counts(counts))

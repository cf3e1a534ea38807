"""Counters: one document per process and hour."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from onceward.protocol.counters import (
    COUNTS_RETENTION,
    HOUR,
    CounterRow,
    StoredCounts,
    decode_counts,
    encode_counts,
    oldest_kept_hour,
)

from . import values
from .calls import PAGE, FoundDocument, where
from .documents import Changes
from .errors import CONFLICT_CODES, FirestoreError
from .opened import OpenedStore
from .values import Value, plain

EXPIRED_PER_ROW: Final = 2
"""Old rows deleted per saved row: twice as many as are added."""

_HOUR: Final = ("hour",)


class FirestoreCounters(OpenedStore):
    """The counters of `FirestoreStore`."""

    async def save_counts(self, counter_rows: Sequence[CounterRow], *, timeout: float) -> int:
        """Save the rows: one read per row, and one write if it is newer than the stored one."""
        with self._call(timeout) as deadline:
            if not counter_rows:
                return await self._calls.now(deadline)
            while True:
                try:
                    now = await self._save(counter_rows, deadline)
                except FirestoreError as error:
                    if error.code not in CONFLICT_CODES:
                        raise
                    continue  # a newer row of this process was written first: read again
                await self._expire_counts(EXPIRED_PER_ROW * len(counter_rows), now, deadline)
                return now

    async def _save(self, counter_rows: Sequence[CounterRow], deadline: float) -> int:
        calls = self._calls
        names = {(calls.address.counts_in, f"{row.process.hex()}-{row.hour}"): row for row in counter_rows}
        found, now = await calls.get(names, deadline)
        batch = [
            calls.build_write(*name, self._changes(row), found[name].version if name in found else None)
            for name, row in names.items()
            if name not in found or int(plain(found[name].fields["number"])) < row.number
        ]
        if batch:
            await calls.commit(batch, deadline)
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

    async def read_counts(self, since: int, *, timeout: float) -> StoredCounts:
        with self._call(timeout) as deadline:
            calls = self._calls
            now = await calls.now(deadline)
            condition = where(_HOUR, "GREATER_THAN_OR_EQUAL", values.number(max(since, oldest_kept_hour(now))))
            counter_rows: list[CounterRow] = []
            last = None
            while True:
                page, _ = await calls.page(
                    calls.address.counts_in, deadline, _HOUR, after=last, limit=PAGE, where=condition
                )
                counter_rows += [_counter_row(one) for one in page]
                if len(page) < PAGE:
                    return StoredCounts(counter_rows, now)
                last = page[-1]

    async def expire_counts(self, limit: int, *, timeout: float) -> int:
        with self._call(timeout) as deadline:
            return await self._expire_counts(limit, await self._calls.now(deadline), deadline)

    async def _expire_counts(self, limit: int, now: int, deadline: float) -> int:
        collection = self._calls.address.counts_in
        condition = where(_HOUR, "LESS_THAN", values.number(oldest_kept_hour(now)))
        old, _ = await self._calls.query(collection, deadline, where=condition, limit=min(limit, PAGE))
        return await self._calls.delete_each(collection, old, deadline)


def _counter_row(one: FoundDocument) -> CounterRow:
    process, hour, number, counts = (plain(one.fields[name]) for name in ("process", "hour", "number", "counts"))
    return CounterRow(process, hour, number, decode_counts(counts))

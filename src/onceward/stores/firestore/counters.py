"""What processes have counted: a document for each process and hour."""

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
from .calls import FirestoreCalls, Found, after, in_order, where
from .documents import Changes
from .errors import FirestoreRefused
from .values import Value, plain

PAGE: Final = 300
SWEEP: Final = 2
"""Old sheets deleted by the way, per sheet: twice what is added."""

_HOUR: Final = ("hour",)


class FirestoreCounters:
    """Sheets in their collection."""

    def __init__(self, calls: FirestoreCalls, clock: Now) -> None:
        self._calls = calls
        self._clock = clock
        self._in = calls.place.counts_in

    async def keep(self, sheets: Sequence[CounterRow], deadline: float) -> int:
        """One read a sheet, and one write if it is newer than what is there."""
        names = [(self._in, f"{sheet.process.hex()}-{sheet.hour}") for sheet in sheets] or [(self._in, "clock")]
        while True:
            found, now = await self._calls.get(names, deadline)
            now = self._clock() or now
            batch = [
                self._calls.writing(*name, self._changes(sheet), None if there is None else there.version)
                for name, sheet, there in ((name, sheet, found.get(name)) for name, sheet in zip(names, sheets))  # noqa: B905 (without sheets there is one name)
                if there is None or int(plain(there.fields["number"])) < sheet.number
            ]
            try:
                if batch:
                    await self._calls.commit(batch, deadline)
            except FirestoreRefused as error:
                if error.code not in faults.RACED:
                    raise
                continue  # our own, overtaken on its way: look again
            if sheets:
                await self.expire(SWEEP * len(sheets), deadline, now)
            return now

    def _changes(self, sheet: CounterRow) -> Changes:
        end = sheet.hour * HOUR + COUNTS_RETENTION + 2 * HOUR
        return {
            ("process",): Value(bytes_value=sheet.process),
            _HOUR: values.number(sheet.hour),
            ("number",): values.number(sheet.number),
            ("counts",): Value(bytes_value=encode_counts(sheet.counts)),
            (self._calls.place.layout.expiry,): values.time(end),
        }

    async def read_counts(self, since: int, deadline: float) -> StoredCounts:
        now = self._clock()
        if now is None:
            _, now = await self._calls.get([(self._in, "clock")], deadline)
        condition = where(_HOUR, "GREATER_THAN_OR_EQUAL", values.number(max(since, oldest_kept_hour(now))))
        sheets: list[CounterRow] = []
        more: dict[str, Any] = {}
        while True:
            page, _ = await self._calls.query(
                self._in, deadline, where=condition, order_by=in_order(_HOUR), limit=PAGE, **more
            )
            sheets += [_sheet(one) for one in page]
            if len(page) < PAGE:
                return StoredCounts(sheets, now)
            last = Value(reference_value=self._calls.path(self._in, page[-1].name))
            more = {"start_at": after(page[-1].fields["hour"], last)}

    async def expire(self, limit: int, deadline: float, now: int | None = None) -> int:
        now = self._clock() if now is None else now
        if now is None:
            _, now = await self._calls.get([(self._in, "clock")], deadline)
        condition = where(_HOUR, "LESS_THAN", values.number(oldest_kept_hour(now)))
        old, _ = await self._calls.query(self._in, deadline, where=condition, limit=min(limit, PAGE))
        if not old:
            return 0
        batch = [self._calls.deleting(self._in, one.name, one.version) for one in old]
        return sum(code == "OK" for code, _ in await self._calls.write_each(batch, deadline))


def _sheet(one: Found) -> CounterRow:
    process, hour, number, counts = (plain(one.fields[name]) for name in ("process", "hour", "number", "counts"))
    return CounterRow(process, hour, number, decode_counts(counts))

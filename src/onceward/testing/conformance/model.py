"""Compare a store with the state table: each request goes to both, and every answer must agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from onceward.protocol import transitions
from onceward.protocol.ports import Filter
from onceward.protocol.record import Record
from onceward.protocol.requests import Answer, AnySettlement, ClaimRequest, Complete, ExpectedRecord, Renewal, Verdict
from onceward.protocol.transitions import Row, purgeable, row_of
from onceward.testing.clock import FakeClock

from .harness import TIMEOUT, Caller, assert_same, differences
from .lookup import FINGERPRINTS, assert_lookup

Change = Callable[[Record | None, Any, int], tuple[Record | None, Verdict]]


class ModelComparison:
    """Sends requests through its callers, and keeps in `records` what the state table says.

    The table is evaluated with the time in the store's answer, so this works for stores with their own clock. A store
    may purge on its own, so a purgeable record may be missing at any time.
    """

    def __init__(self, callers: Sequence[Caller], clock: FakeClock | None) -> None:
        self.records: dict[bytes, Record] = {}
        self.visited: Counter[tuple[Row, str]] = Counter()
        self._callers = callers
        self._clock = clock

    async def claim(self, requests: Sequence[ClaimRequest], via: int = 0) -> list[Answer]:
        answers = await self._store(via).claim(requests, timeout=TIMEOUT)
        return self._check("claim", requests, answers, transitions.claim)

    async def renew(self, renewals: Sequence[Renewal], via: int = 0) -> list[Answer]:
        answers = await self._store(via).renew(renewals, timeout=TIMEOUT)
        return self._check("renew", renewals, answers, transitions.renew)

    async def settle(self, settlements: Sequence[AnySettlement], via: int = 0) -> list[Answer]:
        answers = await self._store(via).settle(settlements, timeout=TIMEOUT)
        return self._check("", settlements, answers, transitions.settle)

    async def forget(self, id: bytes, *, force: bool, via: int = 0, seen: ExpectedRecord | None = None) -> None:
        expected = None if seen is None else {id: seen}
        answers = await self._store(via).forget([id], force=force, timeout=TIMEOUT, seen=expected)

        def change(record: Record | None, _id: bytes, now: int) -> tuple[Record | None, Verdict]:
            return transitions.forget(record, now, force=force, seen=seen)

        self._check("forget", [id], answers, change)

    async def purge(self, limit: int, via: int = 0) -> None:
        """Purge, and check only that no needed record was deleted. `PurgeChecks` checks that purge is complete."""
        before = len(self.records)
        gone = await self._store(via).purge(limit, timeout=TIMEOUT)
        assert 0 <= gone <= limit, f"purge({limit}) returns {gone}"
        await self.compare("after a purge", via)
        assert gone <= before - len(self.records), (
            f"purge returns {gone}, but {before - len(self.records)} records were deleted"
        )

    async def compare(self, when: str, via: int = 0) -> None:
        """Compare every record, field by field, through `read`, `scan` and `counts`."""
        ids = list(self.records)
        answers = await self._store(via).read(ids, timeout=TIMEOUT)
        for id, answer in zip(ids, answers, strict=True):
            if answer.record is None and purgeable(self.records[id], answer.now):
                del self.records[id]
            else:
                assert_same(self.records[id], answer.record, f"{when}, reading")
        page = await self._store(via).scan(Filter(), cursor=None, limit=len(ids) + 1, timeout=TIMEOUT)
        found = {record.id: record for record in page.records}
        assert found == self.records, f"{when}: scan finds {found}, the table has {self.records}"
        counted = await self._store(via).counts(timeout=TIMEOUT)
        wanted = Counter((record.scope, record.state) for record in self.records.values())
        assert {of: number for of, number in counted.items() if number} == wanted, (
            f"{when}: counts() returns {counted}, not {wanted}"
        )

    async def lookup(self, when: str, via: int = 0) -> None:
        """Check `lookup` for every record with each fingerprint, if the store supports it."""
        caller = self._callers[via % len(self._callers)]
        if caller.store.lookup is not None:
            for id, record in self.records.items():
                for fingerprint in FINGERPRINTS:
                    await assert_lookup(caller, record, id, when, fingerprint)

    def _store(self, via: int) -> Any:
        return self._callers[via % len(self._callers)].store

    def _check(self, verb: str, requests: Sequence[Any], answers: list[Answer], change: Change) -> list[Answer]:
        assert len(answers) == len(requests), f"{len(requests)} requests, {len(answers)} answers"
        for request, answer in zip(requests, answers, strict=True):
            assert self._clock is None or answer.now == self._clock.now(), "the answer must contain the store's time"
            id = request if isinstance(request, bytes) else request.id
            before = self.records.get(id)
            wanted, verdict = change(before, request, answer.now)
            if before is not None and purgeable(before, answer.now) and _differs(wanted, verdict, answer, request):
                wanted, verdict = change(None, request, answer.now)
            about = f"{request} to {before} at {answer.now}"
            assert answer.verdict is verdict, f"{about}: expected {verdict}, the store returns {answer.verdict}"
            if answer.record is not None or not _may_omit_record(request, verdict):
                assert_same(wanted, answer.record, about)
            self.visited[row_of(before, answer.now), verb or type(request).__name__.lower()] += 1
            if wanted is None:
                self.records.pop(id, None)
            else:
                self.records[id] = wanted
        return answers


def _may_omit_record(request: Any, verdict: Verdict) -> bool:
    """Return whether the answer may lack the record: to a completion that succeeded. `compare` reads it later."""
    return isinstance(request, Complete) and verdict is Verdict.OK


def _differs(wanted: Record | None, verdict: Verdict, answer: Answer, request: Any) -> bool:
    if verdict is not answer.verdict:
        return True
    is_omitted = answer.record is None and _may_omit_record(request, verdict)
    return not is_omitted and differences(wanted, answer.record) != ""

"""A store and the pure state table side by side: each request goes to both, and every answer must agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from onceward.protocol import transitions
from onceward.protocol.capabilities import SupportsLookup
from onceward.protocol.ports import Filter
from onceward.protocol.record import Record
from onceward.protocol.requests import Answer, AnyRequest, AnySettlement, ClaimRequest, ExpectedRecord, Renewal, Verdict
from onceward.protocol.transitions import Row, purgeable, row_of
from onceward.testing.clock import FakeClock

from .lookup import PAYLOADS, assert_shows
from .stage import TIMEOUT, Caller, assert_same, differences

Change = Callable[[Record | None, Any, int], tuple[Record | None, Verdict]]


class Mirror:
    """Sends through any of its callers, and keeps in `records` what the state table says.

    The table is asked with the time that the store answered, so this works for stores with a clock of their own. A
    store may purge by the way: a record that answers for nothing any more may be missing at any time.
    """

    def __init__(self, callers: Sequence[Caller], clock: FakeClock | None, *, immediate: bool = False) -> None:
        self.records: dict[bytes, Record] = {}
        self.visited: Counter[tuple[Row, str]] = Counter()
        self._callers = callers
        self._clock = clock
        self._immediate = immediate

    async def claim(self, requests: Sequence[ClaimRequest], via: int = 0) -> list[Answer]:
        answers = self._answers(requests, via) or await self._store(via).claim(requests, timeout=TIMEOUT)
        return self._agree("claim", requests, answers, transitions.claim)

    async def renew(self, renewals: Sequence[Renewal], via: int = 0) -> list[Answer]:
        answers = self._answers(renewals, via) or await self._store(via).renew(renewals, timeout=TIMEOUT)
        return self._agree("renew", renewals, answers, transitions.renew)

    async def settle(self, settlements: Sequence[AnySettlement], via: int = 0) -> list[Answer]:
        answers = self._answers(settlements, via) or await self._store(via).settle(settlements, timeout=TIMEOUT)
        return self._agree("", settlements, answers, transitions.settle)

    def _answers(self, requests: Sequence[AnyRequest], via: int) -> list[Answer]:
        """If they are asked for one by one, at once."""
        return [self._store(via).answer(request) for request in requests] if self._immediate else []

    async def forget(self, id: bytes, *, force: bool, via: int = 0, seen: ExpectedRecord | None = None) -> None:
        sights = None if seen is None else {id: seen}
        answers = await self._store(via).forget([id], force=force, timeout=TIMEOUT, seen=sights)

        def change(record: Record | None, _id: bytes, now: int) -> tuple[Record | None, Verdict]:
            return transitions.forget(record, now, force=force, seen=seen)

        self._agree("forget", [id], answers, change)

    async def purge(self, limit: int, via: int = 0) -> None:
        """Only safety: whatever went had to answer for nothing. That purge gets everything is a check of its own."""
        before = len(self.records)
        gone = await self._store(via).purge(limit, timeout=TIMEOUT)
        assert 0 <= gone <= limit, f"purge({limit}) says that {gone} records went"
        await self.compare("after a purge", via)
        assert gone <= before - len(self.records), (
            f"purge says {gone} records went, but it were {before - len(self.records)}"
        )

    async def compare(self, when: str, via: int = 0) -> None:
        """Every record, field by field, by reading, by scanning and by counting."""
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
            f"{when}: counts() says {counted}, not {wanted}"
        )

    async def lookup(self, when: str, via: int = 0) -> None:
        """Every record, with each fingerprint, if the store can be looked at without a claim."""
        store = self._store(via)
        if isinstance(store, SupportsLookup):
            for id, record in self.records.items():
                for fingerprint in PAYLOADS:
                    await assert_shows(store, record, id, fingerprint, when=when, clock=self._clock)

    def _store(self, via: int) -> Any:
        return self._callers[via % len(self._callers)].store

    def _agree(self, verb: str, requests: Sequence[Any], answers: list[Answer], change: Change) -> list[Answer]:
        assert len(answers) == len(requests), f"{len(requests)} requests, {len(answers)} answers"
        for request, answer in zip(requests, answers, strict=True):
            assert self._clock is None or answer.now == self._clock.now(), "the answer must carry the store's own time"
            id = request if isinstance(request, bytes) else request.id
            before = self.records.get(id)
            wanted, verdict = change(before, request, answer.now)
            if before is not None and purgeable(before, answer.now) and _differs(wanted, verdict, answer):
                wanted, verdict = change(None, request, answer.now)
            about = f"{request} to {before} at {answer.now}"
            assert answer.verdict is verdict, f"{about}: wanted {verdict}, the store says {answer.verdict}"
            assert_same(wanted, answer.record, about)
            self.visited[row_of(before, answer.now), verb or type(request).__name__.lower()] += 1
            if wanted is None:
                self.records.pop(id, None)
            else:
                self.records[id] = wanted
        return answers


def _differs(wanted: Record | None, verdict: Verdict, answer: Answer) -> bool:
    return verdict is not answer.verdict or differences(wanted, answer.record) != ""

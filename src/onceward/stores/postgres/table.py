"""The state table applied to rows.

The common cells are one statement each: a claim of a key that has no record, a completion and a renewal by the owner.
Whatever else is asked, the statement shows the record instead; `protocol.transitions` then decides, and what changes is
written if the record is still the version that was seen. A version is PostgreSQL's own: the transaction that wrote it.
What lost such a race asks again, with the record as it is by then.
"""

from __future__ import annotations

import time
from collections.abc import Coroutine, Sequence
from operator import attrgetter
from struct import Struct
from typing import Any, NamedTuple

from onceward.errors import ConfigurationError, StoreUnavailable
from onceward.protocol import transitions
from onceward.protocol.cells import acquire_new_cycle
from onceward.protocol.record import Record, RecordState
from onceward.protocol.requests import Answer, AnyRequest, ClaimRequest, Complete, Renewal, Verdict
from onceward.stores.sql import record_from_row

from .batches import FITS, claim_values, complete_values, is_plain, renew_values, sorted_by_kind
from .connection import Call, PostgresConnection
from .row_reader import Rows
from .rows import columns_of, text_of
from .statements import Statements

OK = Verdict.OK
FIRST_PAUSE, LONGEST_PAUSE = 0.001, 0.05  # seconds before what lost a race asks again
Answers = dict[bytes, Answer]


_by_id = attrgetter("id")


class Sight(NamedTuple):
    """A record as a statement showed it."""

    record: Record | None
    version: int | None
    now: int


Sights = dict[bytes, Sight]


def ids_of(requests: Sequence[AnyRequest]) -> list[bytes]:
    """The ids, each once: the second of two requests for a key would be judged by what the first one found."""
    ids = [request.id for request in requests]
    if len(ids) > 1 and len(set(ids)) < len(ids):
        raise ConfigurationError("a batch holds two requests for the same key", hint="send them one after the other")
    return ids


class PostgresTable:
    """The records in one schema. `now` is None where the server's clock decides."""

    often = 32
    """After so many claims in a row that only had to be looked up, the next ones are looked up first. A guess that
    is wrong costs one look more, and is not made again before as many others were so."""

    def __init__(self, statements: Statements, salt: int) -> None:
        self.statements = statements
        self._salt = salt

    def lock_of(self, id: bytes) -> int:
        """The advisory lock that a claim inside somebody's transaction holds. Another schema has other locks."""
        return self._locks_of([id])[0]

    def _locks_of(self, ids: Sequence[bytes]) -> list[int]:
        salt = self._salt
        return [first ^ salt for (first,) in map(_FIRST, ids)]

    async def apply(
        self, wire: PostgresConnection, requests: Sequence[AnyRequest], now: int | None, deadline: float
    ) -> list[Answer]:
        """Claims, renewals and settlements, each for another key."""
        answers: Answers = {}
        if wire.met >= self.often:
            await self._meet(wire, requests, answers, now, deadline)
            if len(answers) == len(requests):
                return [answers[request.id] for request in requests]
        if len(requests) == 1:
            answer = await self._alone(wire, requests[0], now, deadline)
            if answer is not None:
                return [answer]
        left = sorted([one for one in requests if one.id not in answers] if answers else requests, key=_by_id)
        pause = FIRST_PAUSE
        while True:
            sights = await self._look(wire, left, answers, now, deadline)
            if sights:
                await self._decide(wire, left, sights, answers, deadline)
            if len(answers) == len(requests):
                return [answers[request.id] for request in requests]
            left = [request for request in left if request.id not in answers]
            if time.monotonic() + pause >= deadline:
                raise StoreUnavailable(f"{wire.name}: somebody else was faster, again and again", hint="try again")
            await wire.runtime.sleep(pause * (0.5 + wire.runtime.jitter() / 2))
            pause = min(pause * 2, LONGEST_PAUSE)

    # ── where most of what is asked has been done before ────────────────────────────────────────────────────────

    async def _meet(
        self,
        wire: PostgresConnection,
        requests: Sequence[AnyRequest],
        answers: Answers,
        now: int | None,
        deadline: float,
    ) -> None:
        """Answer what needs nothing but its record, by a statement that can only read: it costs half of a claim."""
        claims = {request.id: request for request in requests if type(request) is ClaimRequest}
        if len(claims) < len(requests):
            wire.met = 0
            return
        if len(claims) == 1:
            rows = await wire.rows(deadline, self.statements.look_one, now, requests[0].id)
        else:
            rows = await wire.rows(deadline, self.statements.look, now, list(claims))
        for row in rows:
            record = record_from_row(row[1:])
            after, verdict = transitions.claim(record, claims[record.id], row[0])
            if after is record:
                answers[record.id] = Answer(verdict, record, row[0])
        if len(answers) < len(requests):
            wire.met = 0

    # ── what comes alone ────────────────────────────────────────────────────────────────────────────────────────

    def _alone(
        self, wire: PostgresConnection, request: AnyRequest, now: int | None, deadline: float
    ) -> Coroutine[Any, Any, Answer | None]:
        """The answer, if a statement of the plainest kind can give it: most calls are such ones."""
        if type(request) is ClaimRequest and (request.lease is None or request.lease < FITS):
            return self._claim_alone(wire, request, now, deadline)
        if type(request) is Complete and is_plain(request):
            return self._complete_alone(wire, request, now, deadline)
        return _nothing()

    async def _claim_alone(
        self, wire: PostgresConnection, request: ClaimRequest, now: int | None, deadline: float
    ) -> Answer | None:
        [row] = await wire.rows(
            deadline, self.statements.claim_one, now, request.id, request.scope, request.key, request.nonce,
            request.lease, request.fingerprint, text_of(request.arguments), request.after_crash._value_,
            request.max_attempts, request.owner, text_of(request.note), self.lock_of(request.id),
        )  # fmt: skip
        time_there, made, version = row[:3]
        if made:
            wire.met = 0
            record, verdict = acquire_new_cycle(None, request, time_there)
            return Answer(verdict, record, time_there)
        if version is None:
            return None
        before = record_from_row(row[3:])
        record, verdict = transitions.claim(before, request, time_there)
        if record is not before:
            return None
        wire.met += 1
        return Answer(verdict, record, time_there)

    async def _complete_alone(
        self, wire: PostgresConnection, request: Complete, now: int | None, deadline: float
    ) -> Answer | None:
        validity, of = request.validity, None if request.omit_record else request.of
        rows = await wire.rows(
            deadline, self.statements.complete_one, now, request.id, request.token, request.nonce, request.result,
            request.digest, request.stored, validity.lasting, validity.until, validity.slide,
            None if of is None else of.updated_at, None if of is None else text_of(of.note),
        )  # fmt: skip
        return _completed(request, rows[0][0]) if rows else None

    # ── one statement for each kind ─────────────────────────────────────────────────────────────────────────────

    async def _look(
        self,
        wire: PostgresConnection,
        requests: Sequence[AnyRequest],
        answers: Answers,
        now: int | None,
        deadline: float,
    ) -> Sights:
        """Do what one statement can do, and see the records of the others."""
        claims, completions, renewals, others = sorted_by_kind(requests)
        calls: list[Call] = []
        if claims:
            calls.append((self.statements.claim, claim_values(claims, now, self._locks_of)))
        if completions:
            calls.append((self.statements.complete, complete_values(completions, now)))
        if renewals:
            calls.append((self.statements.renew, renew_values(renewals, now)))
        if others:
            calls.append((self.statements.read, (now, [request.id for request in others])))
        replies = iter(await wire.run(deadline, *calls))
        sights: Sights = {}
        if claims:
            met = _read_claims(claims, next(replies), answers, sights)
            wire.met = wire.met + met if met == len(claims) else 0
        if completions:
            _read_completions(completions, next(replies), answers, sights)
        if renewals:
            _read_renewals(next(replies), answers, sights)
        if others:
            sights.update(seen(next(replies)))
        return sights

    # ── and the rest of the table ───────────────────────────────────────────────────────────────────────────────

    async def _decide(
        self,
        wire: PostgresConnection,
        requests: Sequence[AnyRequest],
        sights: Sights,
        answers: Answers,
        deadline: float,
    ) -> None:
        changed: Answers = {}
        for request in requests:
            sight = sights.get(request.id)
            if sight is None:
                continue
            record, verdict = transitions.apply(sight.record, request, sight.now)
            answer = Answer(verdict, record, sight.now)
            if record is sight.record:
                answers[request.id] = answer
            else:
                changed[request.id] = answer
        if changed:
            written, held = await self.write(wire, sights, changed, deadline)
            answers.update((id, changed[id]) for id in written)
            answers.update((one.id, _locked(one, sights[one.id])) for one in requests if one.id in held)

    async def write(
        self, wire: PostgresConnection, sights: Sights, changed: Answers, deadline: float
    ) -> tuple[set[bytes], set[bytes]]:
        """Write the records of these answers where nobody has done so since they were seen.

        Tells which were written, and which somebody's open transaction holds.
        """
        records = [answer.record for answer in changed.values() if answer.record is not None]
        before = [sights[record.id] for record in records]
        same_result = [
            one.record is not None and one.record.result is record.result
            for one, record in zip(before, records, strict=True)
        ]
        columns = columns_of(records)
        results = columns[_RESULT]
        columns[_RESULT] = [None if same else result for same, result in zip(same_result, results, strict=True)]
        versions, locks = [one.version for one in before], self._locks_of([record.id for record in records])
        rows = await wire.rows(deadline, self.statements.write, *columns, versions, same_result, locks)
        return {id for id, done, _ in rows if done}, {id for id, _, free in rows if not free}


_RESULT = Record.__struct_fields__.index("result")
_FIRST = Struct(">q").unpack_from  # 8 bytes of an id as a number


async def _nothing() -> None:
    """No statement of that kind."""


def _completed(request: Complete, now: int) -> Answer:
    """What the state table makes of a record that was as its owner has it is what was written."""
    if request.omit_record:
        return Answer(OK, None, now)
    record, verdict = transitions.settle(request.of, request, now)
    return Answer(verdict, record, now)


def _read_claims(claims: Sequence[ClaimRequest], rows: Rows, answers: Answers, sights: Sights) -> int:
    """How many of them were there, and stay as they are."""
    met = 0
    now = rows[0][0]
    shown = {row[1]: row for row in rows}
    for request in claims:
        id = request.id
        row = shown.get(id)
        if row is None:
            record, verdict = acquire_new_cycle(None, request, now)
            answers[id] = Answer(verdict, record, now)
            continue
        _, _, free, version = row[:4]
        if version is not None:
            before = record_from_row(row[4:])
            record, verdict = transitions.claim(before, request, now)
            if record is before:
                answers[id] = Answer(verdict, record, now)
                met += 1
            else:  # the rest of the table
                sights[id] = Sight(before, version, now)
        elif not free:
            answers[id] = Answer(Verdict.RUNNING, elsewhere(request), now)
    return met


def _read_completions(completions: Sequence[Complete], rows: Rows, answers: Answers, sights: Sights) -> None:
    now, first = rows[0][:2]
    shown = {} if first is None else seen(rows)
    sights.update(shown)
    done = Answer(OK, None, now)
    for request in completions:
        if request.id not in shown:
            answers[request.id] = done if request.omit_record else _completed(request, now)


def _read_renewals(rows: Rows, answers: Answers, sights: Sights) -> None:
    for row in rows:
        now, id, done, version = row[:4]
        record = None if version is None else record_from_row(row[4:])
        if done:
            answers[id] = Answer(OK, record, now)
        else:
            sights[id] = Sight(record, version, now)


def seen(rows: Rows) -> Sights:
    """What `read` shows."""
    return {
        id: Sight(None if version is None else record_from_row(tuple(rest)), version, now)
        for now, id, version, *rest in rows
    }


def elsewhere(request: ClaimRequest) -> Record:
    """All that can be told of a claim inside somebody's open transaction: it is held, and has no lease."""
    return Record(request.id, request.scope, request.key, RecordState.PENDING, 0)


def _locked(request: AnyRequest, sight: Sight) -> Answer:
    """Somebody's open transaction holds the record. Nothing here waits for that: others wait behind us."""
    if isinstance(request, ClaimRequest | Renewal):
        return Answer(Verdict.RUNNING, sight.record, sight.now)
    raise StoreUnavailable(
        "the record is held by somebody's open transaction",
        key=sight.record.key if sight.record else None,
        hint="the same call may be repeated; keep transactions short",
    )

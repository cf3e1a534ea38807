"""Apply the state table to rows.

The common cells are one statement each: a claim of a key without a record, a completion and a renewal by the owner. In
all other cases the statement returns the record; `protocol.transitions` then decides, and the change is written if the
record still has the version that was read. The version is PostgreSQL's xmin: the transaction that wrote the row. A
request that loses such a race is repeated with the new record.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from operator import attrgetter
from struct import Struct
from typing import NamedTuple

from onceward.errors import ConfigurationError, StoreUnavailable
from onceward.protocol import transitions
from onceward.protocol.cells import acquire_new_cycle
from onceward.protocol.record import Record, RecordState
from onceward.protocol.requests import Answer, AnyRequest, ClaimRequest, Complete, Renewal, Verdict
from onceward.stores.sql import json_text, record_from_row

from .batches import claim_values, complete_values, group_by_kind, has_plain_lease, renew_values
from .connection import Call, PostgresConnection, Rows
from .rows import columns_of
from .statements import Statements

OK = Verdict.OK
MIN_PAUSE, MAX_PAUSE = 0.001, 0.05  # seconds before a request that lost a race is repeated
Answers = dict[bytes, Answer]


_by_id = attrgetter("id")


class RecordSnapshot(NamedTuple):
    """A record as a statement returned it, with its row version and the store's time."""

    record: Record | None
    version: int | None
    now: int


Snapshots = dict[bytes, RecordSnapshot]


def ids_of(requests: Sequence[AnyRequest]) -> list[bytes]:
    """Return the ids. Raise if one occurs twice: the second request would not see the change of the first."""
    ids = [request.id for request in requests]
    if len(ids) > 1 and len(set(ids)) < len(ids):
        raise ConfigurationError("a batch contains two requests for the same key", hint="send them one after the other")
    return ids


class PostgresTable:
    """The records in one schema. `now` None: the server's clock."""

    def __init__(self, statements: Statements, salt: int) -> None:
        self.statements = statements
        self._salt = salt

    def lock_of(self, id: bytes) -> int:
        """Return the number of the advisory lock that a claim inside a caller's transaction holds, per schema."""
        return self._locks_of([id])[0]

    def _locks_of(self, ids: Sequence[bytes]) -> list[int]:
        salt = self._salt
        return [prefix ^ salt for (prefix,) in map(_unpack_prefix, ids)]

    async def apply(
        self, connection: PostgresConnection, requests: Sequence[AnyRequest], now: int | None, deadline: float
    ) -> list[Answer]:
        """Apply claims, renewals and settlements, at most one per key."""
        answers: Answers = {}
        if len(requests) == 1 and type(requests[0]) is ClaimRequest:
            answer = await self._claim_one(connection, requests[0], now, deadline)
            if answer is not None:
                return [answer]
        pending = sorted(requests, key=_by_id)
        pause = MIN_PAUSE
        while True:
            snapshots = await self._apply_common(connection, pending, answers, now, deadline)
            if snapshots:
                await self._decide(connection, pending, snapshots, answers, deadline)
            if len(answers) == len(requests):
                return [answers[request.id] for request in requests]
            pending = [request for request in pending if request.id not in answers]
            if time.monotonic() + pause >= deadline:
                raise StoreUnavailable(
                    f"{connection.name}: other transactions kept conflicting with this call", hint="try again"
                )
            await connection.runtime.sleep(pause * (0.5 + connection.runtime.jitter() / 2))
            pause = min(pause * 2, MAX_PAUSE)

    # ── a single claim ──────────────────────────────────────────────────────────────────────────────────────────

    async def _claim_one(
        self, connection: PostgresConnection, request: ClaimRequest, now: int | None, deadline: float
    ) -> Answer | None:
        """Return the answer if `claim_one` can give it, as for most calls; else None."""
        if not has_plain_lease(request):
            return None
        [row] = await connection.rows(
            deadline, self.statements.claim_one, now, request.id, request.scope, request.key, request.nonce,
            request.lease, request.fingerprint, json_text(request.arguments), request.after_crash._value_,
            request.max_attempts, request.owner, json_text(request.note), self.lock_of(request.id),
        )  # fmt: skip
        server_now, inserted, version = row[:3]
        if inserted:
            record, verdict = acquire_new_cycle(None, request, server_now)
            return Answer(verdict, record, server_now)
        if version is None:
            return None
        before = record_from_row(row[3:])
        record, verdict = transitions.claim(before, request, server_now)
        return Answer(verdict, record, server_now) if record is before else None

    # ── one statement per kind ──────────────────────────────────────────────────────────────────────────────────

    async def _apply_common(
        self,
        connection: PostgresConnection,
        requests: Sequence[AnyRequest],
        answers: Answers,
        now: int | None,
        deadline: float,
    ) -> Snapshots:
        """Apply the requests that one statement can decide. Return the records of the others."""
        claims, completions, renewals, others = group_by_kind(requests)
        calls: list[Call] = []
        if claims:
            calls.append((self.statements.claim, claim_values(claims, now, self._locks_of)))
        if completions:
            calls.append((self.statements.complete, complete_values(completions, now)))
        if renewals:
            calls.append((self.statements.renew, renew_values(renewals, now)))
        if others:
            calls.append((self.statements.read, (now, [request.id for request in others])))
        replies = iter(await connection.run(deadline, *calls))
        snapshots: Snapshots = {}
        if claims:
            _read_claims(claims, next(replies), answers, snapshots)
        if completions:
            _read_completions(completions, next(replies), answers, snapshots)
        if renewals:
            _read_renewals(next(replies), answers, snapshots)
        if others:
            snapshots.update(snapshots_from_rows(next(replies)))
        return snapshots

    # ── the rest of the state table ──────────────────────────────────────────────────────────────────────────────

    async def _decide(
        self,
        connection: PostgresConnection,
        requests: Sequence[AnyRequest],
        snapshots: Snapshots,
        answers: Answers,
        deadline: float,
    ) -> None:
        changed: Answers = {}
        for request in requests:
            snapshot = snapshots.get(request.id)
            if snapshot is None:
                continue
            record, verdict = transitions.apply(snapshot.record, request, snapshot.now)
            answer = Answer(verdict, record, snapshot.now)
            if record is snapshot.record:
                answers[request.id] = answer
            else:
                changed[request.id] = answer
        if changed:
            written, held = await self.write(connection, snapshots, changed, deadline)
            answers.update((id, changed[id]) for id in written)
            answers.update((one.id, _locked_answer(one, snapshots[one.id])) for one in requests if one.id in held)

    async def write(
        self, connection: PostgresConnection, snapshots: Snapshots, changed: Answers, deadline: float
    ) -> tuple[set[bytes], set[bytes]]:
        """Write the records of these answers, unless a record has changed since it was read.

        Return the ids that were written, and the ids that another open transaction holds.
        """
        records = [answer.record for answer in changed.values() if answer.record is not None]
        before = [snapshots[record.id] for record in records]
        same_result = [
            one.record is not None and one.record.result is record.result
            for one, record in zip(before, records, strict=True)
        ]
        columns = columns_of(records)
        results = columns[_RESULT]
        columns[_RESULT] = [None if same else result for same, result in zip(same_result, results, strict=True)]
        versions, locks = [one.version for one in before], self._locks_of([record.id for record in records])
        rows = await connection.rows(deadline, self.statements.write, *columns, versions, same_result, locks)
        return {id for id, done, _ in rows if done}, {id for id, _, free in rows if not free}


_RESULT = Record.__struct_fields__.index("result")
_unpack_prefix = Struct(">q").unpack_from  # the first 8 bytes of an id as a number


def _read_claims(claims: Sequence[ClaimRequest], rows: Rows, answers: Answers, snapshots: Snapshots) -> None:
    now = rows[0][0]
    returned = {row[1]: row for row in rows}
    for request in claims:
        id = request.id
        row = returned.get(id)
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
            else:  # the rest of the state table
                snapshots[id] = RecordSnapshot(before, version, now)
        elif not free:
            answers[id] = Answer(Verdict.RUNNING, uncommitted_claim(request), now)


def _read_completions(completions: Sequence[Complete], rows: Rows, answers: Answers, snapshots: Snapshots) -> None:
    now, prefix = rows[0][:2]
    returned = {} if prefix is None else snapshots_from_rows(rows)
    snapshots.update(returned)
    done = Answer(OK, None, now)
    for request in completions:
        if request.id not in returned:
            answers[request.id] = done


def _read_renewals(rows: Rows, answers: Answers, snapshots: Snapshots) -> None:
    for row in rows:
        now, id, done, version = row[:4]
        record = None if version is None else record_from_row(row[4:])
        if done:
            answers[id] = Answer(OK, record, now)
        else:
            snapshots[id] = RecordSnapshot(record, version, now)


def snapshots_from_rows(rows: Rows) -> Snapshots:
    """Return the snapshots from the rows of the statement `read`."""
    return {
        id: RecordSnapshot(None if version is None else record_from_row(tuple(rest)), version, now)
        for now, id, version, *rest in rows
    }


def uncommitted_claim(request: ClaimRequest) -> Record:
    """Return a record for a claim inside another open transaction: it is PENDING, and has no lease."""
    return Record(request.id, request.scope, request.key, RecordState.PENDING, 0)


def _locked_answer(request: AnyRequest, snapshot: RecordSnapshot) -> Answer:
    """Return the answer for a record that another transaction holds. Waiting for it would delay the other requests."""
    if isinstance(request, ClaimRequest | Renewal):
        return Answer(Verdict.RUNNING, snapshot.record, snapshot.now)
    raise StoreUnavailable(
        "another open transaction holds the record",
        key=snapshot.record.key if snapshot.record else None,
        hint="the same call may be repeated; keep transactions short",
    )

"""Apply the state table to documents.

    read        read the documents, and with them the server's time
    decide      `protocol.transitions` returns the new record of each
    write       write what changed: create, or update if the document still has the version that was read
    retry       if another writer was faster: read again after a pause, while there is time

An owner's settlement or renewal skips the read if its claim is cached: the conditional write fails if the cache is
outdated. After a lost reply the request is repeated in the same way: the nonce in the document shows whose claim it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec import Struct

from onceward.errors import ConfigurationError, ResultError
from onceward.protocol.audit import AuditSignature, audit_entries
from onceward.protocol.record import Record, RecordState
from onceward.protocol.requests import Answer, AnyRequest, ClaimRequest, Release, Renewal, Resolve, Verdict
from onceward.protocol.runtime import Runtime
from onceward.protocol.transitions import VERBS, settle

from . import audit as trail
from . import errors as faults
from .cache import CachedDocument, FirestoreCache
from .calls import OK, FirestoreCalls, nest_fields
from .documents import MAX_HISTORY_BYTES, Records
from .errors import FirestoreError
from .names import hash_name, name_of
from .values import micros, size_of_fields

INITIAL_PAUSE, MAX_PAUSE = 0.01, 0.25  # seconds before a request that lost a race is retried
MAX_DOCUMENT_BYTES: Final = 1 << 20
"""The limit of Firestore."""

RESERVED_BYTES: Final = 288 << 10
"""Reserved for everything but the result: names, marks, notes, a stored input, the journal of a saga, the history."""

MAX_VALUE_BYTES: Final = MAX_DOCUMENT_BYTES - RESERVED_BYTES
"""Limit for a result, or for a state's value."""

MEASURE_FROM_BYTES: Final = MAX_DOCUMENT_BYTES // 2
"""A record with less content than this need not be measured."""

MAX_CLOCK_LAG: Final = 5_000_000
"""µs that the time derived from an earlier reply may lag: more than the latency of any reply."""

LOCKED: Final = "HELD"
"""The read succeeded but the write timed out: an open transaction has locked the document."""

Transition = Callable[[Record | None, int], tuple[Record | None, Verdict]]


class DocumentRequest(Struct):
    """A request in progress. `retryable`: a repeated request gets the same answer, so it may be sent again."""

    id: bytes
    transition: Transition
    request: AnyRequest | None = None
    retryable: bool = True
    answer: Answer | None = None
    cached: CachedDocument | None = None


def document_request(request: AnyRequest) -> DocumentRequest:
    verb = VERBS[type(request)]
    return DocumentRequest(
        request.id, lambda record, now: verb(record, request, now), request, retryable=not isinstance(request, Resolve)
    )


class FirestoreTable:
    """The records of one collection."""

    def __init__(self, calls: FirestoreCalls, records: Records, runtime: Runtime) -> None:
        self.calls = calls
        self.records = records
        self._runtime = runtime
        self._clock = calls.clock
        self._cache = calls.cache
        self._collection = calls.address.collection

    async def apply(
        self, jobs: Sequence[DocumentRequest], deadline: float, signed: AuditSignature | None = None
    ) -> list[Answer]:
        """Return one answer per job. `signed`: each change and its audit entry are written atomically."""
        _reject_duplicates(jobs)
        left: Sequence[DocumentRequest] = jobs
        pause, reason = INITIAL_PAUSE, ""
        while left:
            try:
                now = await self._load(left, deadline)
                reason = await self._apply_once(left, now, deadline, signed) or reason
            except FirestoreError as error:
                reason = self._retry_reason(error, left)
            left = [job for job in left if job.answer is None]
            if left and time.monotonic() + 1.5 * pause >= deadline:
                self._give_up(left, reason)
                break
            if left:
                await self._runtime.sleep(pause * (0.5 + self._runtime.jitter()))
                pause = min(2 * pause, MAX_PAUSE)
        return [job.answer for job in jobs if job.answer is not None]

    async def read(self, ids: Sequence[bytes], deadline: float) -> list[Answer]:
        jobs = [DocumentRequest(id, _unchanged) for id in ids]
        try:
            now = await self._read(jobs, deadline)
        except FirestoreError as error:
            raise faults.error_for(error, self.calls.name) from error
        found = [job.cached.record if job.cached else None for job in jobs]
        return [Answer(Verdict.ABSENT if record is None else Verdict.OK, record, now) for record in found]

    # ── reading ──

    async def _load(self, jobs: Sequence[DocumentRequest], deadline: float) -> int:
        """Load the documents from the cache or the server, and return the server's time."""
        for job in jobs:
            job.cached = self._from_cache(job)
        uncached = [job for job in jobs if job.cached is None]
        now = self._cache.now()
        if uncached or now is None:
            now = await self._read(uncached or jobs, deadline)
        return self._clock() or now

    def _from_cache(self, job: DocumentRequest) -> CachedDocument | None:
        request: Any = job.request
        if request is None or isinstance(request, ClaimRequest | Resolve):
            return None
        return self._cache.get_owned(job.id, request.token, request.nonce)

    async def _read(self, jobs: Sequence[DocumentRequest], deadline: float) -> int:
        """Read the documents of these jobs. Search by id for those whose document name is unknown."""
        names = {job.id: document_name(self._cache, job.id, job.request) for job in jobs}
        found, now = await self.calls.get(((self._collection, name) for name in names.values()), deadline)
        missing = []
        for job in jobs:
            one = found.get((self._collection, names[job.id]))
            if one is None:
                job.cached = CachedDocument(names[job.id], None, None)
                if not isinstance(job.request, ClaimRequest):
                    missing.append(job)
            else:
                record = self.records.record_for(job.id, job.request, one.fields, self.calls.name)
                job.cached = CachedDocument(one.name, record, one.version)
        if missing:
            await self._search(missing, deadline)
        return now

    async def _search(self, jobs: Sequence[DocumentRequest], deadline: float) -> None:
        by_id = {job.id: job for job in jobs}
        for one in await self.calls.find_by_ids(self._collection, self.records.paths["id"], list(by_id), deadline):
            job = by_id[self.records.id_in(one.fields) or b""]
            job.cached = CachedDocument(one.name, self.records.record(job.id, one.fields), one.version)

    # ── deciding and writing ──

    async def _apply_once(
        self, jobs: Sequence[DocumentRequest], now: int, deadline: float, signed: AuditSignature | None
    ) -> str:
        """Answer the jobs that can be answered, and return why the others failed."""
        changing: list[tuple[DocumentRequest, Record, Answer]] = []
        for job in jobs:
            assert job.cached is not None  # noqa: S101 (it was loaded)
            before, at = job.cached.record, max(now, self._earliest_time(job))
            record, verdict = job.transition(self._without_unconfirmed(job, before, at), at)
            if record is before or record is None:
                job.answer = Answer(verdict, before, at)
            else:
                changing.append((job, record, Answer(verdict, record, at)))
        batches = [self._writes(job, record, answer, signed) for job, record, answer in changing]
        ended = await self._write(batches, deadline)
        reason = ""
        for (job, record, answer), (code, version) in zip(changing, ended, strict=True):
            reason = self._finish(job, record, answer, code, version) or reason
        return reason

    def _without_unconfirmed(self, job: DocumentRequest, record: Record | None, now: int) -> Record | None:
        """Treat an unconfirmed claim of this process as released: it was written, but its caller never started."""
        if record is None or not self._cache.is_unconfirmed(record):
            return record
        if getattr(job.request, "nonce", b"") == record.nonce:  # a repetition of the same claim is granted again
            return record
        return settle(record, Release(record.id, record.token, record.nonce), now)[0]

    def _earliest_time(self, job: DocumentRequest) -> int:
        """Return the time of the last write, which a time derived from an earlier reply must not precede."""
        if self._clock() is not None or job.cached is None or job.cached.record is None:
            return 0
        return job.cached.record.updated_at if self._from_cache(job) is not None else 0

    def _writes(self, job: DocumentRequest, record: Record, answer: Answer, signed: AuditSignature | None) -> list[Any]:
        assert job.cached is not None  # noqa: S101 (as above)
        cached = job.cached
        changes = self.records.changes(cached.record, record)
        self._check_size(record)
        batch = [self.calls.build_write(self._collection, cached.name, changes, cached.version)]
        if signed is not None:
            entries = audit_entries(signed, lambda _: cached.record, [answer])
            batch += [trail.entry_write(self.calls, entry) for entry in entries]
        return batch

    async def _write(self, batches: Sequence[list[Any]], deadline: float) -> list[tuple[str, Any]]:
        if not batches:
            return []
        if all(len(batch) == 1 for batch in batches):
            return await self.calls.write_each([batch[0] for batch in batches], deadline)
        ended: list[tuple[str, Any]] = []
        for batch in batches:  # signed: the change and its entry are written atomically
            try:
                ended.append((OK, (await self.calls.commit(batch, deadline))[0]))
            except FirestoreError as error:
                if error.code not in faults.CONFLICT_CODES:
                    raise
                ended.append((error.code, None))
        return ended

    def _finish(self, job: DocumentRequest, record: Record, answer: Answer, code: str, version: Any) -> str:
        """Set the answer of a job after its write, or return why there is none yet."""
        if code == OK:
            assert job.cached is not None  # noqa: S101 (as above)
            self._cache.put(CachedDocument(job.cached.name, record, version))
            job.answer = None if self._used_outdated_time(job, answer, version) else answer
            return ""
        self._cache.drop(job.id)
        if code in faults.CONFLICT_CODES:
            return code
        if code == "DEADLINE_EXCEEDED" and isinstance(job.request, ClaimRequest):
            return LOCKED
        if code in faults.AMBIGUOUS_CODES and job.retryable:
            return code
        raise FirestoreError(
            code, "the reply to a write was lost" if code in faults.AMBIGUOUS_CODES else "a write was rejected"
        )

    def _used_outdated_time(self, job: DocumentRequest, answer: Answer, version: Any) -> bool:
        """Return whether a renewal used an outdated time: this machine was suspended, and the lease may have expired.

        The commit has updated the clock, so repeating the renewal uses the right time.
        """
        return (
            isinstance(job.request, Renewal)
            and self._clock() is None
            and micros(version) - answer.now > min(MAX_CLOCK_LAG, job.request.lease // 4)
        )

    def _check_size(self, record: Record) -> None:
        """Raise if the document is too large. The server would reject it only after the work was done."""
        text_size = sum(map(len, record.note.values())) + sum(map(len, record.arguments.values()))
        if len(record.result or b"") + text_size < MEASURE_FROM_BYTES:
            return
        size = size_of_fields(nest_fields(self.records.changes(None, record)))
        if size > MAX_DOCUMENT_BYTES - MAX_HISTORY_BYTES - 4096:
            raise ResultError(
                f"{self.calls.name}: the document would have {size} bytes, and the limit is {MAX_DOCUMENT_BYTES}",
                key=record.key,
                hint="return less, or return a reference to the result",
            )

    # ── errors ──

    def _retry_reason(self, error: FirestoreError, jobs: Sequence[DocumentRequest]) -> str:
        """Return the reason for a retry, or raise if a retry cannot help."""
        if error.code in faults.AMBIGUOUS_CODES and all(job.retryable for job in jobs):
            return error.code
        if error.code == "ABORTED":
            return error.code
        raise faults.error_for(error, self.calls.name) from error

    def _give_up(self, jobs: Sequence[DocumentRequest], reason: str) -> None:
        """Answer claims that other writers kept from being written as running elsewhere; raise for other requests.

        Such a claim may still be written after the other transaction ends, or only its reply was lost. The next claim
        in this process recognises it by its nonce and treats it as released. For other processes its lease expires.
        """
        for job in jobs:
            request = job.request
            if not isinstance(request, ClaimRequest) or not (reason == LOCKED or reason in faults.CONFLICT_CODES):
                raise self._error_for_code(reason)
            self._cache.add_unconfirmed(request.id, request.nonce)
            seen = job.cached.record if job.cached else None
            shown = seen if seen is not None and seen.state is RecordState.PENDING else locked_record(request)
            job.answer = Answer(Verdict.RUNNING, shown, self._clock() or self._cache.now() or 0)

    def _error_for_code(self, reason: str) -> Exception:
        reason = "DEADLINE_EXCEEDED" if reason in {"", LOCKED} else reason
        return faults.error_for(FirestoreError(reason, "until the end of this call"), self.calls.name)


def document_name(cache: FirestoreCache, id: bytes, request: AnyRequest | None) -> str:
    """Return the name of a request's document.

    It is certain only for a claim. For other requests, the document may have another name, which a search finds.
    """
    if isinstance(request, ClaimRequest):
        return name_of(id, request.scope, request.key)
    return cache.document_name(id) or hash_name(id)


def locked_record(request: ClaimRequest) -> Record:
    """Return what is known of a claim inside another open transaction: it is pending, without a lease."""
    return Record(request.id, request.scope, request.key, RecordState.PENDING, 0)


def _unchanged(record: Record | None, _now: int) -> tuple[Record | None, Verdict]:
    return record, Verdict.OK


def _reject_duplicates(jobs: Sequence[DocumentRequest]) -> None:
    """Raise if two requests have the same key: the second would be decided on what the first one read."""
    if len(jobs) > 1 and len({job.id for job in jobs}) < len(jobs):
        raise ConfigurationError("a batch holds two requests for the same key", hint="send them one after the other")

"""The store inside the caller's own Firestore transaction. It never commits; the caller does.

A Firestore transaction reads first and writes when it commits, and its client rejects reads after a write. So a claim
reads, and thereby locks, its document immediately. The record is written together with its result when the work is
done, so that the handler can still read. After a conflict, the client runs the caller's function again, which claims
again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from google.cloud.firestore_v1.types import write as writes

from onceward.errors import ConfigurationError, RetryTransaction, StoreError, WrongRuntime
from onceward.protocol.latest import EntityState, EventDelivery, LatestResult, Retention
from onceward.protocol.record import Record
from onceward.protocol.requests import Answer, AnyRequest, ClaimRequest, Verdict
from onceward.protocol.runtime import Runtime
from onceward.stores.joined_savepoints import JoinedVerbs

from . import errors as faults
from .calls import ANY_VERSION, FirestoreCalls, FoundDocument
from .documents import Changes, Fields, Records
from .errors import FirestoreError
from .latest import decide_changes
from .latest_documents import LatestDocuments
from .names import hash_name
from .table import document_name
from .values import MapValue, Value

TRANSACTION_HINT: Final = "call it inside a function that is decorated with @firestore.transactional"
RETRY_CODES: Final = frozenset({"ABORTED", "FAILED_PRECONDITION", "INVALID_ARGUMENT", "NOT_FOUND"})
DocumentPath = tuple[str, str]
Transition = Callable[[Record | None, Any, int], tuple[Record | None, Verdict]]


class JoinedRecord(NamedTuple):
    """A record in this transaction: `written` is what the server has, `record` what the transaction will write."""

    name: str
    written: Record | None
    exists: bool
    record: Record | None


class FirestoreJoined(JoinedVerbs):
    """The store inside the caller's transaction."""

    block = "a function with @firestore.transactional"

    def __init__(self, transaction: Any, runtime: Runtime, records: Records, states: LatestDocuments) -> None:
        calls = states.calls
        _check(transaction, runtime, calls)
        self._transaction = transaction
        self._calls = calls
        self._records = records
        self._states = states
        self._id: bytes = transaction.id
        self._collection = calls.address.collection
        self._last_read = 0, 0.0
        self._records_to_write: dict[bytes, JoinedRecord] = {}
        self._savepoints: list[tuple[int, dict[bytes, JoinedRecord]]] = []

    async def _apply_each(self, change: Transition, requests: Sequence[AnyRequest], timeout: float) -> list[Answer]:
        return [await self._apply(change, one, timeout) for one in requests]

    async def _apply(self, change: Transition, request: AnyRequest, timeout: float) -> Answer:
        joined, now = await self._load(request, time.monotonic() + timeout)
        record, verdict = change(joined.record, request, now)
        if record is not joined.record and record is not None:
            self._records_to_write[request.id] = joined._replace(record=record)
            self._calls.cache.drop(request.id)
            if not self._savepoints:
                self._flush()
        return Answer(verdict, record, now)

    async def _load(self, request: AnyRequest, deadline: float) -> tuple[JoinedRecord, int]:
        joined = self._records_to_write.get(request.id)
        if joined is not None:
            return joined, self._time()
        name = document_name(self._calls.cache, request.id, request)
        found, now = await self._read([(self._collection, name)], deadline)
        one = found.get((self._collection, name))
        if one is None and not isinstance(request, ClaimRequest):
            one = await self._search(request.id, deadline)
        if one is None:
            return JoinedRecord(name, None, exists=False, record=None), now
        record = self._records.record_for(request.id, request, one.fields, self._calls.name)
        return JoinedRecord(one.name, record, exists=True, record=record), now

    async def _search(self, id: bytes, deadline: float) -> FoundDocument | None:
        """Find a document that is named after its content, then read it again inside the transaction."""
        hits = await self._calls.find_by_ids(self._collection, self._records.paths["id"], [id], deadline)
        if not hits:
            return None
        found, _ = await self._read([(self._collection, hits[0].name)], deadline)
        return found.get((self._collection, hits[0].name))

    def _flush(self) -> None:
        for joined in self._records_to_write.values():
            if joined.record is not None and joined.record is not joined.written:
                changes = self._records.changes(joined.written, joined.record)
                self._add((self._collection, joined.name), changes, exists=joined.exists)
        self._records_to_write = {}

    # ── latest state ─────────────────────────────────────────────────────────────────────────────────────────────

    async def apply_events(
        self, deliveries: Sequence[EventDelivery], keep: Retention, *, timeout: float
    ) -> list[LatestResult]:
        deadline = time.monotonic() + timeout
        found, now = await self._read(self._states.paths_for(deliveries), deadline)
        answers, documents = decide_changes(self._states, deliveries, found, now, keep)
        for place, changes in documents.items():
            there = found.get(place)
            dropped = [] if there is None else self._states.removed_members(place, changes, there)
            self._add(place, changes, exists=there is not None, dropped=dropped)
        return answers

    async def read_latest(self, ids: Sequence[bytes], *, timeout: float) -> list[EntityState | None]:
        deadline = time.monotonic() + timeout
        collection = self._states.states_in
        places = [(collection, hash_name(id)) for id in ids]
        if self._calls.address.entity_ids:  # find their names by a query, then read them in the transaction
            places += [(collection, one.name) for one in await self._states.search(ids, deadline)]
        found, now = await self._read(places, deadline)
        found_states = [self._states.state(one.fields) for one in found.values()]
        current = {one.id: one for one in found_states if one.expires_at is None or one.expires_at > now}
        return [current.get(id) for id in ids]

    # ── the transaction ─────────────────────────────────────────────────────────────────────────────────────────

    def is_open(self) -> bool:
        return bool(self._transaction.id == self._id)

    async def begin(self, *, timeout: float) -> None:  # noqa: ARG002 (no call is made)
        self._raise_if_ended()
        self._savepoints.append((len(self._pending()), dict(self._records_to_write)))

    async def keep(self) -> bool:
        """Keep the writes of this block. They are added at the end of the outermost block: until then reads work."""
        self._savepoints.pop()
        if not self.is_open():
            return False
        if not self._savepoints:
            self._flush()
        return True

    async def undo(self) -> bool:
        if not self._savepoints:  # it was kept, and something failed after that
            return self.is_open()
        writes_before, self._records_to_write = self._savepoints.pop()
        if not self.is_open():
            return False
        del self._pending()[writes_before:]
        return True

    async def abandon(self) -> bool:
        """Do nothing: this client starts no transaction implicitly."""
        return False

    def _pending(self) -> list[Any]:
        pending: list[Any] = self._transaction._write_pbs  # noqa: SLF001 (there is no public access to pending writes)
        return pending

    def _add(self, place: DocumentPath, changes: Changes, *, exists: bool, dropped: Iterable[Any] = ()) -> None:
        """Add a write without a precondition: documents read in the transaction are locked, or checked at commit."""
        write = self._calls.build_write(*place, changes, ANY_VERSION if exists else None, dropped)
        write.ClearField("current_document")
        self._transaction._add_write_pbs([writes.Write.wrap(write)])  # noqa: SLF001 (there is no public way to add a prepared write)

    async def _read(
        self, places: Sequence[DocumentPath], deadline: float
    ) -> tuple[dict[DocumentPath, FoundDocument], int]:
        """Read documents as the transaction will leave them, including its own pending writes."""
        self._raise_if_ended()
        try:
            found, now = await self._calls.get(places, deadline, self._id)
        except FirestoreError as error:
            raise _store_error(error, self._calls.name) from error
        for place in places:
            path = self._calls.path(*place)
            for write in map(writes.Write.pb, self._pending()):
                if write.update.name == path:
                    there = found.get(place)
                    fields = apply_write({} if there is None else there.fields, write)
                    found[place] = FoundDocument(place[1], fields, ANY_VERSION if there is None else there.version)
        self._last_read = now, time.monotonic()
        return found, self._time()

    def _time(self) -> int:
        """Return the server's time: that of the last read, plus the time passed since."""
        read_at, since = self._last_read
        return self._calls.clock() or read_at + int(1e6 * (time.monotonic() - since))

    def _raise_if_ended(self) -> None:
        if not self.is_open():
            raise RetryTransaction("your transaction has ended or was restarted", hint=TRANSACTION_HINT)


def apply_write(fields: Fields, write: Any) -> Fields:
    """Return the fields of a document after this write."""
    given = write.update.fields
    if not write.HasField("update_mask"):
        return dict(given)
    after = dict(fields)
    for path in write.update_mask.field_paths:
        first, _, rest = path.partition(".")
        if not rest:
            if first in given:
                after[first] = given[first]
            else:
                after.pop(first, None)
            continue
        members = dict(after[first].map_value.fields) if first in after else {}
        inner = given[first].map_value.fields if first in given else {}
        if rest in inner:
            members[rest] = inner[rest]
        else:
            members.pop(rest, None)
        after[first] = Value(map_value=MapValue(fields=members))
    return after


def _check(transaction: Any, runtime: Runtime, calls: FirestoreCalls) -> None:
    client = getattr(transaction, "_client", None)
    database = getattr(client, "_database_string", None)
    if database is None or not hasattr(transaction, "in_progress"):
        raise ConfigurationError(
            f"{type(transaction).__qualname__} is not a Firestore transaction",
            hint="pass the transaction that @firestore.transactional passes to your function",
        )
    is_async = type(transaction).__name__.startswith("Async")
    if is_async is not runtime.supports_cancellation:
        raise WrongRuntime(
            f"{type(transaction).__qualname__} does not fit this client",
            hint="pass a Transaction to Once, and an AsyncTransaction to AsyncOnce",
        )
    if database != calls.address.root:
        raise ConfigurationError(
            f"this transaction is on {database}, but the store is on {calls.address.root}: they cannot commit together",
            hint="open both on the same database",
        )
    if not transaction.in_progress:
        raise ConfigurationError("this transaction has not started", hint=TRANSACTION_HINT)
    if getattr(transaction, "_read_only", False):
        raise ConfigurationError(
            "this transaction is read-only, so nothing can be claimed in it", hint=TRANSACTION_HINT
        )


def _store_error(error: FirestoreError, name: str) -> StoreError | Exception:
    if error.code in RETRY_CODES:
        return RetryTransaction(
            f"{name}: the server aborted your transaction ({error.code}: {error.text[:200]})",
            hint="let your function raise this error, and call it again",
        )
    return faults.error_for(error, name)

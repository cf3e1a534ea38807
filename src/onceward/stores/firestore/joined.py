"""The store inside the caller's own Firestore transaction: nothing commits here.

A transaction of Firestore reads first and writes when it commits, and its client refuses reads behind a write. So what
is claimed here is read, and therefore locked, at once, and written down with its result when the work is done: the
handler may still read. If others come between, the client runs the caller's function once more, and that asks again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from google.cloud.firestore_v1.types import write as writes

from onceward.errors import ConfigurationError, RetryTransaction, StoreError, WrongRuntime
from onceward.protocol import transitions
from onceward.protocol.latest import EntityState, EventDelivery, LatestResult, Retention
from onceward.protocol.record import Record
from onceward.protocol.requests import Answer, AnyRequest, AnySettlement, ClaimRequest, Renewal, Verdict
from onceward.protocol.runtime import Runtime

from . import errors as faults
from .cache import Now
from .calls import ANY, FirestoreCalls, Found, where
from .documents import Changes, Fields, Records
from .errors import FirestoreRefused
from .latest import Look, judged, to_write
from .latest_documents import LatestDocuments
from .names import hashed, name_of
from .values import ArrayValue, MapValue, Value

INSIDE: Final = "call it inside of a function that is decorated with @firestore.transactional"
AGAIN: Final = frozenset({"ABORTED", "FAILED_PRECONDITION", "INVALID_ARGUMENT", "NOT_FOUND"})
Place = tuple[str, str]
Change = Callable[[Record | None, Any, int], tuple[Record | None, Verdict]]


class Known(NamedTuple):
    """A record as this transaction has it: `written` is what the server has, and `record` what shall be there."""

    name: str
    written: Record | None
    there: bool
    record: Record | None


class FirestoreJoined:
    """The store, seen from the caller's transaction."""

    exclusive = False
    number: str | None = None
    block = "a function with @firestore.transactional"

    def __init__(
        self, transaction: Any, runtime: Runtime, records: Records, states: LatestDocuments, clock: Now
    ) -> None:
        calls = states.calls
        _check(transaction, runtime, calls)
        self._transaction = transaction
        self._calls = calls
        self._records = records
        self._states = states
        self._clock = clock
        self._id: bytes = transaction.id
        self._in = calls.place.collection
        self._heard = 0, 0.0
        self._later: dict[bytes, Known] = {}
        self._points: list[tuple[int, dict[bytes, Known]]] = []

    # ── the verbs ───────────────────────────────────────────────────────────────────────────────────────────────

    async def claim(self, requests: Sequence[ClaimRequest], *, timeout: float) -> list[Answer]:
        return [await self._apply(transitions.claim, one, timeout) for one in requests]

    async def settle(self, settlements: Sequence[AnySettlement], *, timeout: float) -> list[Answer]:
        return [await self._apply(transitions.settle, one, timeout) for one in settlements]

    async def renew(self, renewals: Sequence[Renewal], *, timeout: float) -> list[Answer]:
        return [await self._apply(transitions.renew, one, timeout) for one in renewals]

    async def _apply(self, change: Change, request: AnyRequest, timeout: float) -> Answer:
        known, now = await self._look(request, time.monotonic() + timeout)
        record, verdict = change(known.record, request, now)
        if record is not known.record and record is not None:
            self._later[request.id] = known._replace(record=record)
            self._calls.recall.drop(request.id)
            if not self._points:
                self._write_down()
        return Answer(verdict, record, now)

    async def _look(self, request: AnyRequest, deadline: float) -> tuple[Known, int]:
        known = self._later.get(request.id)
        if known is not None:
            return known, self._time()
        if isinstance(request, ClaimRequest):
            name = name_of(request.id, request.scope, request.key)
        else:
            name = self._calls.recall.name(request.id) or hashed(request.id)
        found, now = await self._read([(self._in, name)], deadline)
        one = found.get((self._in, name))
        if one is None and not isinstance(request, ClaimRequest):
            one = await self._search(request.id, deadline)
        if one is None:
            return Known(name, None, there=False, record=None), now
        if isinstance(request, ClaimRequest):
            record = self._records.claimed(request, one.fields, self._calls.name)
        else:
            record = self._records.record(request.id, one.fields)
        return Known(one.name, record, there=True, record=record), now

    async def _search(self, id: bytes, deadline: float) -> Found | None:
        """Whose document is called after its content; then it is read once more, in the transaction."""
        ids = Value(array_value=ArrayValue(values=[Value(bytes_value=id)]))
        hits, _ = await self._calls.query(self._in, deadline, where=where(self._records.paths["id"], "IN", ids))
        if not hits:
            return None
        found, _ = await self._read([(self._in, hits[0].name)], deadline)
        return found.get((self._in, hits[0].name))

    def _write_down(self) -> None:
        for known in self._later.values():
            if known.record is not None and known.record is not known.written:
                changes = self._records.changes(known.written, known.record)
                self._add((self._in, known.name), changes, there=known.there)
        self._later = {}

    # ── newest wins ─────────────────────────────────────────────────────────────────────────────────────────────

    async def apply_events(
        self, deliveries: Sequence[EventDelivery], keep: Retention, *, timeout: float
    ) -> list[LatestResult]:
        deadline = time.monotonic() + timeout
        found, now = await self._read(self._states.wanted(deliveries), deadline)
        look = Look(found, now)
        decisions = judged(self._states, deliveries, look)
        for place, changes in to_write(self._states, decisions, look, keep, deliveries).items():
            there = found.get(place)
            dropped = [] if there is None else self._states.dropped(place, changes, there)
            self._add(place, changes, there=there is not None, dropped=dropped)
        return decisions.answers

    async def latest(self, ids: Sequence[bytes], *, timeout: float) -> list[EntityState | None]:
        deadline = time.monotonic() + timeout
        collection = self._states.states_in
        places = [(collection, hashed(id)) for id in ids]
        if self._calls.place.entity_ids:  # only a search knows their names; what it finds is read in the transaction
            places += [(collection, one.name) for one in await self._states.search(ids, deadline)]
        found, now = await self._read(places, deadline)
        standings = [self._states.standing(one.fields) for one in found.values()]
        held = {one.id: one for one in standings if one.expires_at is None or one.expires_at > now}
        return [held.get(id) for id in ids]

    # ── the transaction ─────────────────────────────────────────────────────────────────────────────────────────

    def is_open(self) -> bool:
        return bool(self._transaction.id == self._id)

    def blocks_writes(self) -> bool:
        return False

    async def begin(self, *, timeout: float) -> None:  # noqa: ARG002 (nothing is asked)
        self._refuse_ended()
        self._points.append((len(self._pending()), dict(self._later)))

    async def keep(self) -> bool:
        """What was written is written down at the end of the outermost block: until then the caller may read."""
        self._points.pop()
        if not self.is_open():
            return False
        if not self._points:
            self._write_down()
        return True

    async def undo(self) -> bool:
        if not self._points:  # it was kept, and something failed behind that
            return self.is_open()
        writes_before, self._later = self._points.pop()
        if not self.is_open():
            return False
        del self._pending()[writes_before:]
        return True

    async def abandon(self) -> bool:
        """Nothing begins by itself in this client."""
        return False

    def _pending(self) -> list[Any]:
        pending: list[Any] = self._transaction._write_pbs  # noqa: SLF001 (what is written is nowhere else)
        return pending

    def _add(self, place: Place, changes: Changes, *, there: bool, dropped: Iterable[Any] = ()) -> None:
        """A write without a condition: what was read in the transaction is locked, or checked when it commits."""
        write = self._calls.writing(*place, changes, ANY if there else None, dropped)
        write.ClearField("current_document")
        self._transaction._add_write_pbs([writes.Write.wrap(write)])  # noqa: SLF001 (takes no prepared writes otherwise)

    async def _read(self, places: Sequence[Place], deadline: float) -> tuple[dict[Place, Found], int]:
        """As the transaction will leave them: what is already written in it counts."""
        self._refuse_ended()
        try:
            found, now = await self._calls.get(places, deadline, self._id)
        except FirestoreRefused as error:
            raise _meaning(error, self._calls.name) from error
        for place in places:
            path = self._calls.path(*place)
            for write in map(writes.Write.pb, self._pending()):
                if write.update.name == path:
                    there = found.get(place)
                    fields = overlaid({} if there is None else there.fields, write)
                    found[place] = Found(place[1], fields, ANY if there is None else there.version)
        self._heard = now, time.monotonic()
        return found, self._time()

    def _time(self) -> int:
        """The server's, as of the last read here and what has passed since."""
        read_at, since = self._heard
        return self._clock() or read_at + int(1e6 * (time.monotonic() - since))

    def _refuse_ended(self) -> None:
        if not self.is_open():
            raise RetryTransaction("your transaction has ended, or was begun again", hint=INSIDE)


def overlaid(fields: Fields, write: Any) -> Fields:
    """The fields of a document after this write."""
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
            f"{type(transaction).__qualname__} is not a transaction of Firestore",
            hint="hand over what @firestore.transactional gives your function",
        )
    awaits = type(transaction).__name__.startswith("Async")
    if awaits is not runtime.supports_cancellation:
        raise WrongRuntime(
            f"{type(transaction).__qualname__} belongs to the other colour",
            hint="Once takes a Transaction, and AsyncOnce an AsyncTransaction",
        )
    if database != calls.place.root:
        raise ConfigurationError(
            f"this transaction is on {database}, and the store on {calls.place.root}: the two cannot commit together",
            hint="open both on the same database",
        )
    if not transaction.in_progress:
        raise ConfigurationError("this transaction has not begun", hint=INSIDE)
    if getattr(transaction, "_read_only", False):
        raise ConfigurationError("this transaction is read-only, so nothing can be claimed in it", hint=INSIDE)


def _meaning(error: FirestoreRefused, name: str) -> StoreError | Exception:
    if error.code in AGAIN:
        return RetryTransaction(
            f"{name}: the server gave your transaction up ({error.code}: {error.text[:200]})",
            hint="let your function raise this, and call it again",
        )
    return faults.explain(error, name)

"""The few calls that the store is made of: read documents, write them, and search."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from google.cloud.firestore_v1.types import common
from google.cloud.firestore_v1.types import document as documents
from google.cloud.firestore_v1.types import firestore as messages
from google.cloud.firestore_v1.types import query as queries
from google.cloud.firestore_v1.types import write as writes

from onceward.errors import StoreUnavailable

from . import errors as faults
from .address import FirestoreAddress
from .cache import FirestoreCache
from .documents import Changes, Fields
from .errors import FirestoreRefused
from .layout import Path
from .transport import FirestoreTransport
from .values import MapValue, Value, micros

Write: Final = writes.Write.pb()
Document: Final = documents.Document.pb()
Mask: Final = common.DocumentMask.pb()
Precondition: Final = common.Precondition.pb()
Query: Final = queries.StructuredQuery.pb()
Aggregation: Final = queries.StructuredAggregationQuery.pb()

LOOKS: Final = 300
"""Documents read in one call."""

WRITES: Final = 200
"""Documents written in one call: the server takes more, but they travel as one message of at most 10 MiB."""

MOST_BYTES: Final = 8 << 20
NAME: Final = "__name__"
OK: Final = "OK"
DESCENDING: Final = 2
ABSENT: Final = Precondition(exists=False)
ANY: Final = object()
"""In the place of a version: there is a document, and it does not matter which."""


class Found(NamedTuple):
    """A document: its id in the collection, what it holds, and its version."""

    name: str
    fields: Fields
    version: Any


class FirestoreCalls:
    """Firestore, as far as a store needs it. Every call is over by its deadline (monotonic seconds)."""

    def __init__(self, place: FirestoreAddress, wire: FirestoreTransport, recall: FirestoreCache) -> None:
        self.place = place
        self.name = place.name
        self.recall = recall
        self._wire = wire
        self._base = f"{place.root}/documents"

    def left(self, deadline: float) -> float:
        left = deadline - time.monotonic()
        if left <= 0:
            raise StoreUnavailable(f"{self.name}: the time for this call is over", hint=faults.AGAIN)
        return left

    def path(self, collection: str, name: str) -> str:
        return f"{self._base}/{collection}/{name}"

    # ── reading ──

    async def get(
        self, wanted: Iterable[tuple[str, str]], deadline: float, transaction: bytes | None = None
    ) -> tuple[dict[tuple[str, str], Found], int]:
        """Documents by collection and id, as far as they are there; and the server's time."""
        paths = {self.path(*one): one for one in wanted}
        found: dict[tuple[str, str], Found] = {}
        now, names = 0, list(paths)
        for start in range(0, len(names), LOOKS):
            request = messages.BatchGetDocumentsRequest.pb()(
                database=self.place.root, documents=names[start : start + LOOKS]
            )
            if transaction is not None:
                request.transaction = transaction
            wrapped = messages.BatchGetDocumentsRequest.wrap(request)
            for answer in await self._wire.many("batch_get_documents", wrapped, self.left(deadline)):
                held = messages.BatchGetDocumentsResponse.pb(answer)
                now = max(now, micros(held.read_time))
                if held.found.name:
                    one = paths[held.found.name]
                    found[one] = Found(one[1], held.found.fields, held.found.update_time)
        if now and transaction is None:  # inside of one, time may stand still
            self.recall.heard(now)
        return found, now

    async def query(
        self, collection: str, deadline: float, *, limit: int | None = None, **how: Any
    ) -> tuple[list[Found], int]:
        """Documents of a collection, and the server's time. `how`: see `Query`."""
        asked = Query(from_=[Query.CollectionSelector(collection_id=collection)], **how)
        if limit is not None:
            asked.limit.value = limit
        request = messages.RunQueryRequest.pb()(parent=self._base, structured_query=asked)
        answers = await self._wire.many("run_query", messages.RunQueryRequest.wrap(request), self.left(deadline))
        found, now = [], 0
        for answer in answers:
            held = messages.RunQueryResponse.pb(answer)
            now = max(now, micros(held.read_time))
            if held.document.name:
                name = held.document.name.rpartition("/")[2]
                found.append(Found(name, held.document.fields, held.document.update_time))
        if now:
            self.recall.heard(now)
        return found, now

    async def count(self, collection: str, deadline: float, where: Any) -> int:
        """How many documents of a collection are like this, without reading them."""
        asked = Query(from_=[Query.CollectionSelector(collection_id=collection)], where=where)
        count = Aggregation.Aggregation(alias="n", count=Aggregation.Aggregation.Count())
        request = messages.RunAggregationQueryRequest.pb()(
            parent=self._base,
            structured_aggregation_query=Aggregation(structured_query=asked, aggregations=[count]),
        )
        wrapped = messages.RunAggregationQueryRequest.wrap(request)
        answers = await self._wire.many("run_aggregation_query", wrapped, self.left(deadline))
        held = [messages.RunAggregationQueryResponse.pb(answer).result.aggregate_fields for answer in answers]
        return sum(int(fields["n"].integer_value) for fields in held if "n" in fields)

    # ── writing ──

    def writing(self, collection: str, name: str, changes: Changes, version: Any, dropped: Iterable[Path] = ()) -> Any:
        """A document made, or changed in these fields if it still has this version. What is dropped is gone then."""
        document = Document(name=self.path(collection, name), fields=nested(changes))
        if version is None:
            return Write(update=document, current_document=ABSENT)
        mask = Mask(field_paths=[".".join(path) for path in (*changes, *dropped)])
        if version is ANY:
            return Write(update=document, update_mask=mask)
        return Write(update=document, update_mask=mask, current_document=Precondition(update_time=version))

    def deleting(self, collection: str, name: str, version: Any) -> Any:
        return Write(delete=self.path(collection, name), current_document=Precondition(update_time=version))

    async def commit(self, batch: Sequence[Any], deadline: float) -> list[Any]:
        """All of them or none; the version of each."""
        request = messages.CommitRequest.pb()(database=self.place.root, writes=batch)
        answer = await self._wire.one("commit", messages.CommitRequest.wrap(request), self.left(deadline))
        held = messages.CommitResponse.pb(answer)
        self.recall.heard(micros(held.commit_time))
        return [result.update_time for result in held.write_results]

    async def write_each(self, batch: Sequence[Any], deadline: float) -> list[tuple[str, Any]]:
        """Each by itself: what became of it (OK, or gRPC's word), and its version."""
        if len(batch) == 1:
            try:
                return [(OK, version) for version in await self.commit(batch, deadline)]
            except FirestoreRefused as error:
                if error.code in faults.RACED or error.code in faults.UNSURE:
                    return [(error.code, None)]
                raise
        ended: list[tuple[str, Any]] = []
        for some in chunks(batch):
            ended += await self._write_some(some, deadline)
        return ended

    async def _write_some(self, batch: Sequence[Any], deadline: float) -> list[tuple[str, Any]]:
        request = messages.BatchWriteRequest.pb()(database=self.place.root, writes=batch)
        try:
            answer = await self._wire.one("batch_write", messages.BatchWriteRequest.wrap(request), self.left(deadline))
        except FirestoreRefused as error:
            if error.code in faults.UNSURE or error.code == "ABORTED":
                return [(error.code, None)] * len(batch)
            raise
        held = messages.BatchWriteResponse.pb(answer)
        ended = zip(held.status, held.write_results, strict=True)
        return [(_code(status.code), result.update_time) for status, result in ended]


def chunks(batch: Sequence[Any]) -> Iterable[list[Any]]:
    """As many together as one call takes."""
    some: list[Any] = []
    size = 0
    for one in batch:
        weight = one.ByteSize()
        if some and (len(some) >= WRITES or size + weight > MOST_BYTES):
            yield some
            some, size = [], 0
        some.append(one)
        size += weight
    if some:
        yield some


def nested(changes: Changes) -> dict[str, Any]:
    """Fields of a document from what stands where."""
    fields: dict[str, Any] = {}
    maps: dict[str, dict[str, Any]] = {}
    for path, value in changes.items():
        if len(path) == 1:
            fields[path[0]] = value
        else:
            maps.setdefault(path[0], {})[path[1]] = value
    return fields | {name: Value(map_value=MapValue(fields=inner)) for name, inner in maps.items()}


def field(path: Path) -> Any:
    """A field, as queries name it."""
    return Query.FieldReference(field_path=".".join(path))


def where(path: Path, operator: str, value: Any) -> Any:
    """One condition. `operator` is Firestore's word: EQUAL, IN, LESS_THAN_OR_EQUAL."""
    number = Query.FieldFilter.Operator.Value(operator)
    return Query.Filter(field_filter=Query.FieldFilter(field=field(path), op=number, value=value))


def both(conditions: Sequence[Any]) -> Any:
    """All of these; None of none."""
    if len(conditions) <= 1:
        return conditions[0] if conditions else None
    joined = Query.CompositeFilter(op=Query.CompositeFilter.Operator.Value("AND"), filters=conditions)
    return Query.Filter(composite_filter=joined)


def ordered(path: Path, *, descending: bool = False) -> Any:
    return Query.Order(field=field(path), direction=DESCENDING if descending else 1)


def in_order(path: Path, *, descending: bool = False) -> list[Any]:
    """By this field, and then by name, as Firestore does it anyway: a page can go on behind a document."""
    return [ordered(path, descending=descending), ordered((NAME,), descending=descending)]


def after(*values: Any) -> Any:
    """Where a query goes on: behind this place in its order."""
    return queries.Cursor.pb()(values=values, before=False)


def _code(number: int) -> str:
    return _CODES.get(number, "UNKNOWN")


_CODES: Final[Mapping[int, str]] = dict(enumerate((
    OK, "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
    "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED",
    "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
)))  # fmt: skip
"""gRPC's numbers."""

"""The Firestore calls that the store uses: read, write and query documents."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from google.cloud.firestore_v1.types import common
from google.cloud.firestore_v1.types import document as documents
from google.cloud.firestore_v1.types import firestore as messages
from google.cloud.firestore_v1.types import query as queries
from google.cloud.firestore_v1.types import write as writes
from grpc import StatusCode

from onceward.errors import ConfigurationError, StoreUnavailable

from . import errors as faults
from .address import FirestoreAddress
from .cache import FirestoreCache, Now
from .documents import Changes, Fields
from .errors import FirestoreError
from .layout import Path
from .names import MAX_ID_BYTES
from .transport import FirestoreTransport
from .values import ArrayValue, MapValue, Value, micros, value_at

Write: Final = writes.Write.pb()
Document: Final = documents.Document.pb()
Mask: Final = common.DocumentMask.pb()
Precondition: Final = common.Precondition.pb()
Query: Final = queries.StructuredQuery.pb()
Aggregation: Final = queries.StructuredAggregationQuery.pb()
Cursor: Final = queries.Cursor.pb()

READS_PER_CALL: Final = 300
"""Documents per read call."""

PAGE: Final = 300
"""Documents per query."""

IDS_PER_QUERY: Final = 30
"""Firestore's limit for the values of an IN condition."""

WRITES_PER_CALL: Final = 200
"""Documents per write call. The server accepts more, but a request may have only 10 MiB."""

MAX_CALL_BYTES: Final = 8 << 20
NAME: Final = "__name__"
OK: Final = "OK"
DESCENDING: Final = 2
ABSENT: Final = Precondition(exists=False)
CODES: Final = {status.value[0]: status.name for status in StatusCode}
"""The names of gRPC status codes by number."""

ANY_VERSION: Final = object()
"""Instead of a version: the document exists, and its version does not matter."""


class FoundDocument(NamedTuple):
    """A document: its id in the collection, its fields and its version."""

    name: str
    fields: Fields
    version: Any


def document_at(cursor: bytes) -> FoundDocument:
    """Return the document after which a page starts, without its fields. Raise ConfigurationError for other bytes."""
    try:
        name = cursor.decode()
    except UnicodeDecodeError:
        name = ""
    if name in ("", ".", "..") or "/" in name or len(cursor) > MAX_ID_BYTES:
        raise ConfigurationError("this is not a cursor of this store", hint="start with the first page")
    return FoundDocument(name, {}, None)


class FirestoreCalls:
    """The Firestore calls that a store needs. Every call ends by its deadline (monotonic seconds).

    If there is a test clock, calls return its time instead of the server's.
    """

    def __init__(
        self, address: FirestoreAddress, transport: FirestoreTransport, cache: FirestoreCache, clock: Now
    ) -> None:
        self.address = address
        self.name = address.name
        self.cache = cache
        self.clock = clock
        self._transport = transport
        self._base = f"{address.root}/documents"

    def left(self, deadline: float) -> float:
        left = deadline - time.monotonic()
        if left <= 0:
            raise StoreUnavailable(f"{self.name}: the call's timeout has expired", hint=faults.RETRY_HINT)
        return left

    def path(self, collection: str, name: str) -> str:
        return f"{self._base}/{collection}/{name}"

    async def _call_stream(self, method: str, request: Any, deadline: float, **fields: Any) -> list[Any]:
        """Call a streaming method with a request of this class. Return its replies as plain protobuf messages."""
        wrapped = request.wrap(request.pb()(**fields))
        replies = await self._transport.call_stream(method, wrapped, self.left(deadline))
        return [type(reply).pb(reply) for reply in replies]

    async def _call_to_write(self, method: str, request: Any, batch: Sequence[Any], deadline: float) -> Any:
        wrapped = request.wrap(request.pb()(database=self.address.root, writes=batch))
        reply = await self._transport.call(method, wrapped, self.left(deadline))
        return type(reply).pb(reply)

    # ── reading ──

    async def get(
        self, wanted: Iterable[tuple[str, str]], deadline: float, transaction: bytes | None = None
    ) -> tuple[dict[tuple[str, str], FoundDocument], int]:
        """Return the existing documents by collection and id, and the time."""
        paths = {self.path(*one): one for one in wanted}
        found: dict[tuple[str, str], FoundDocument] = {}
        now, names = 0, list(paths)
        for start in range(0, len(names), READS_PER_CALL):
            fields: dict[str, Any] = {"database": self.address.root, "documents": names[start : start + READS_PER_CALL]}
            if transaction is not None:
                fields["transaction"] = transaction
            request = messages.BatchGetDocumentsRequest
            for response in await self._call_stream("batch_get_documents", request, deadline, **fields):
                now = max(now, micros(response.read_time))
                if response.found.name:
                    one = paths[response.found.name]
                    found[one] = FoundDocument(one[1], response.found.fields, response.found.update_time)
        if now and transaction is None:  # inside a transaction, the read time may not advance
            self.cache.sync_clock(now)
        return found, self.clock() or now

    async def now(self, deadline: float) -> int:
        """Return the store's time. The server's time comes from a read."""
        return self.clock() or (await self.get([(self.address.collection, "clock")], deadline))[1]

    async def query(
        self, collection: str, deadline: float, *, limit: int | None = None, **clauses: Any
    ) -> tuple[list[FoundDocument], int]:
        """Return documents of a collection, and the time. `clauses` are fields of `Query`."""
        query = Query(from_=[Query.CollectionSelector(collection_id=collection)], **clauses)
        if limit is not None:
            query.limit.value = limit
        fields = {"parent": self._base, "structured_query": query}
        found, now = [], 0
        for response in await self._call_stream("run_query", messages.RunQueryRequest, deadline, **fields):
            now = max(now, micros(response.read_time))
            if response.document.name:
                name = response.document.name.rpartition("/")[2]
                found.append(FoundDocument(name, response.document.fields, response.document.update_time))
        if now:
            self.cache.sync_clock(now)
        return found, self.clock() or now

    async def page(
        self,
        collection: str,
        deadline: float,
        *paths: Path,
        after: FoundDocument | None,
        limit: int,
        descending: bool = False,
        **clauses: Any,
    ) -> tuple[list[FoundDocument], int]:
        """Return a page of a query, sorted by `paths`, and the time. `after` is the last document of the previous page.

        Documents with equal values are sorted by name, as Firestore does anyway.
        """
        if after is not None:
            name = Value(reference_value=self.path(collection, after.name))
            clauses["start_at"] = Cursor(values=[*(value_at(after.fields, path) for path in paths), name], before=False)
        order = [order_by(path, descending=descending) for path in (*paths, (NAME,))]
        return await self.query(collection, deadline, limit=limit, order_by=order, **clauses)

    async def find_by_ids(
        self, collection: str, path: Path, ids: Sequence[bytes], deadline: float
    ) -> list[FoundDocument]:
        """Return the documents that have one of these ids at the path."""
        found: list[FoundDocument] = []
        for start in range(0, len(ids), IDS_PER_QUERY):
            some = ArrayValue(values=[Value(bytes_value=id) for id in ids[start : start + IDS_PER_QUERY]])
            condition = where(path, "IN", Value(array_value=some))
            found += (await self.query(collection, deadline, where=condition))[0]
        return found

    async def count(self, collection: str, deadline: float, where: Any) -> int:
        """Return how many documents of a collection match, without reading them."""
        query = Query(from_=[Query.CollectionSelector(collection_id=collection)], where=where)
        count = Aggregation.Aggregation(alias="n", count=Aggregation.Aggregation.Count())
        fields = {
            "parent": self._base,
            "structured_aggregation_query": Aggregation(structured_query=query, aggregations=[count]),
        }
        request = messages.RunAggregationQueryRequest
        replies = await self._call_stream("run_aggregation_query", request, deadline, **fields)
        counts = [reply.result.aggregate_fields for reply in replies]
        return sum(int(one["n"].integer_value) for one in counts if "n" in one)

    # ── writing ──

    def build_write(
        self, collection: str, name: str, changes: Changes, version: Any, dropped: Iterable[Path] = ()
    ) -> Any:
        """Return the write that creates a document, or updates these fields if it still has this version.

        The fields in `dropped` are deleted.
        """
        document = Document(name=self.path(collection, name), fields=nest_fields(changes))
        if version is None:
            return Write(update=document, current_document=ABSENT)
        mask = Mask(field_paths=[".".join(path) for path in (*changes, *dropped)])
        if version is ANY_VERSION:
            return Write(update=document, update_mask=mask)
        return Write(update=document, update_mask=mask, current_document=Precondition(update_time=version))

    async def delete_each(self, collection: str, documents: Sequence[FoundDocument], deadline: float) -> int:
        """Delete the documents that still have the version that was read. Return how many were deleted."""
        batch = [self.build_delete(collection, one.name, one.version) for one in documents]
        return sum(code == OK for code, _ in await self.write_each(batch, deadline)) if batch else 0

    def build_delete(self, collection: str, name: str, version: Any) -> Any:
        return Write(delete=self.path(collection, name), current_document=Precondition(update_time=version))

    async def commit(self, batch: Sequence[Any], deadline: float) -> list[Any]:
        """Write all or nothing, and return the version of each document."""
        response = await self._call_to_write("commit", messages.CommitRequest, batch, deadline)
        self.cache.sync_clock(micros(response.commit_time))
        return [result.update_time for result in response.write_results]

    async def write_each(self, batch: Sequence[Any], deadline: float) -> list[tuple[str, Any]]:
        """Write each document independently, and return its status (OK or a gRPC status name) and version."""
        if len(batch) == 1:
            try:
                return [(OK, version) for version in await self.commit(batch, deadline)]
            except FirestoreError as error:
                if error.code in faults.CONFLICT_CODES or error.code in faults.AMBIGUOUS_CODES:
                    return [(error.code, None)]
                raise
        results: list[tuple[str, Any]] = []
        for chunk in split_writes(batch):
            results += await self._write_chunk(chunk, deadline)
        return results

    async def _write_chunk(self, batch: Sequence[Any], deadline: float) -> list[tuple[str, Any]]:
        try:
            response = await self._call_to_write("batch_write", messages.BatchWriteRequest, batch, deadline)
        except FirestoreError as error:
            if error.code in faults.AMBIGUOUS_CODES or error.code == "ABORTED":
                return [(error.code, None)] * len(batch)
            raise
        results = zip(response.status, response.write_results, strict=True)
        return [(CODES.get(status.code, "UNKNOWN"), result.update_time) for status, result in results]


def split_writes(batch: Sequence[Any]) -> Iterable[list[Any]]:
    """Split the writes into chunks that fit into one call each."""
    chunk: list[Any] = []
    size = 0
    for one in batch:
        weight = one.ByteSize()
        if chunk and (len(chunk) >= WRITES_PER_CALL or size + weight > MAX_CALL_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(one)
        size += weight
    if chunk:
        yield chunk


def nest_fields(changes: Changes) -> dict[str, Any]:
    """Return the fields of a document from values by path."""
    fields: dict[str, Any] = {}
    maps: dict[str, dict[str, Any]] = {}
    for path, value in changes.items():
        if len(path) == 1:
            fields[path[0]] = value
        else:
            maps.setdefault(path[0], {})[path[1]] = value
    return fields | {name: Value(map_value=MapValue(fields=inner)) for name, inner in maps.items()}


def field(path: Path) -> Any:
    """Return a field reference for a query."""
    return Query.FieldReference(field_path=".".join(path))


def where(path: Path, operator: str, value: Any) -> Any:
    """Return one condition. `operator` is Firestore's name: EQUAL, IN, LESS_THAN_OR_EQUAL."""
    number = Query.FieldFilter.Operator.Value(operator)
    return Query.Filter(field_filter=Query.FieldFilter(field=field(path), op=number, value=value))


def all_of(conditions: Sequence[Any]) -> Any:
    """Return the conjunction of the conditions, or None if there are none."""
    if len(conditions) <= 1:
        return conditions[0] if conditions else None
    joined = Query.CompositeFilter(op=Query.CompositeFilter.Operator.Value("AND"), filters=conditions)
    return Query.Filter(composite_filter=joined)


def order_by(path: Path, *, descending: bool = False) -> Any:
    return Query.Order(field=field(path), direction=DESCENDING if descending else 1)

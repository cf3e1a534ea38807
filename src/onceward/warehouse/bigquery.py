"""BigQuery as the warehouse: rows are staged by parameterised jobs, and merged in one transaction under a derived id.

    look      SELECT: was this load done? Then that is the answer
    stage     a table of this call's own, filled by jobs of at most a few megabytes
    merge     one job: its turn, the MERGE and the record commit together, or nothing does
    answer    SELECT: what the record says

The record is the truth; the job ids save work. A job that is sent again under its id is the same job, so a lost answer
costs nothing, and two who do the same load at once wait for one job. A job that has failed stays so for ever: the next
attempt has the next number.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from onceward.errors import SourceError, StoreBroken, StoreError, StoreNotSetUp

from . import bigquery_sql as sql
from .batch import RowBatch, Tuple, batch_of
from .bigquery_driver import driver
from .bigquery_jobs import Jobs
from .bigquery_merge import BigQueryComparing
from .bigquery_url import parse
from .load import LOADS, by_key, checked, plain_columns, refuse_other_columns, refused, replayed, wanted_keys
from .port import Fingerprinting, Loaded, MergeResult
from .row_merge import Rows
from .table import ColumnType, Table

STAGED_FOR: Final = timedelta(hours=6)
"""BigQuery itself removes what a killed loader has left."""

CHUNK: Final = 3_000_000
"""Bytes of rows in a request: escaped they are at most three times as many, and BigQuery takes ten million."""

FOUND_AS: Final = {"timestamp": "timestamp with time zone", "datetime": "timestamp"}
"""BigQuery's names of types that mean something else elsewhere."""

REFUSED: Final = ("null", "constraint", "out of range", "overflow")
"""What is in BigQuery's message if a row, not the statement, is at fault."""


class BigQueryWarehouse:
    """As many loaders as you like, from as many processes. Loads into one table take turns."""

    def __init__(self, url: str) -> None:
        self._driver = driver()
        self._place = place = parse(url)
        self.name = place.name
        self.client = self._opened()
        self._jobs = Jobs(self.client, self.name, place.timeout)
        self._jobs.location = self._make_dataset(place.dataset)  # jobs of other regions are found only if it is told
        self._make(place.dataset, LOADS, sql.LOADS)

    def _opened(self) -> Any:
        place = self._place
        settings: dict[str, Any] = {}
        if place.endpoint is not None:
            settings = {"credentials": self._driver.Anonymous(), "client_options": {"api_endpoint": place.endpoint}}
        try:
            return self._driver.Client(place.project, location=place.location, **settings)
        except self._driver.AuthError as error:
            raise StoreNotSetUp(
                f"{self.name}: no credentials ({error})",
                hint="set GOOGLE_APPLICATION_CREDENTIALS, or log in with gcloud",
            ) from error

    def prepare(self, table: Table) -> None:
        dataset, name = self._parts(table)
        if dataset != self._place.dataset:
            self._make_dataset(dataset)
        columns = {column: sql.TYPES[kind] for column, kind in table.columns.items()}
        found = self._make(dataset, name, columns)
        refuse_other_columns(table, {field.name: _kind(field.field_type) for field in found})
        self._prepare_turns(_turns(name), dataset)

    def _prepare_turns(self, name: str, dataset: str) -> None:
        self._make(dataset, name, sql.TURN)
        turns = self._quoted(name, dataset)
        if not self._jobs.rows(f"SELECT turn FROM {turns} LIMIT 1"):
            self._jobs.run(f"onceward_turn_{uuid.uuid4().hex}", sql.first_turn(turns))

    def load(
        self, load_id: str, table: Table, rows: Iterable[Mapping[str, Any]], *, fingerprint: Fingerprinting = "rows"
    ) -> Loaded:
        batch = checked(load_id, batch_of(table, rows), fingerprint)
        nonce = uuid.uuid4().hex
        before = self._answer(load_id, batch, nonce)
        if before is not None:
            return before
        staging = f"onceward_staging_{nonce}"
        self._stage(staging, batch)
        try:
            loaded = self._merged(load_id, batch, staging, nonce)
        except StoreBroken as error:
            if any(word in str(error).lower() for word in REFUSED):
                raise refused(table, load_id, error) from error
            raise
        self._drop(staging)
        return loaded

    def merge(self, table: Table, rows: Iterable[Mapping[str, Any]], *, whole: bool = False) -> MergeResult:
        """As everywhere; recorded among the loads, under an id of its own."""
        given = Rows(table, rows)
        dataset, name = self._parts(table)
        staged: list[str] = []  # a table a pass: a job that fills one is done once, under its id

        def fill(batch: RowBatch) -> str:
            staged.append(f"onceward_staging_{uuid.uuid4().hex}")
            self._stage(staged[-1], batch)
            return self._quoted(staged[-1])

        def put_in(batch: RowBatch) -> None:
            nonce = staged[-1].rpartition("_")[2]
            self._merged(f"merge {nonce}", batch, staged[-1], nonce, whole=whole)

        try:
            comparing = BigQueryComparing(self._quoted(name, dataset), fill, put_in, self._jobs.rows)
            return given.merge(comparing, whole=whole)
        finally:
            for one in staged:
                self._drop(one)

    def _drop(self, staging: str) -> None:
        with suppress(StoreError):  # the load is done; what is left goes by itself
            self._jobs.asked(
                lambda: self.client.delete_table(self._id(staging), not_found_ok=True, **self._jobs.request)
            )

    def _merged(self, load_id: str, batch: RowBatch, staging: str, nonce: str, *, whole: bool = False) -> Loaded:
        table = batch.table
        dataset, name = self._parts(table)
        places = sql.Places(
            self._quoted(name, dataset),
            self._quoted(staging),
            self._quoted(LOADS),
            self._quoted(_turns(name), dataset),
        )
        script = sql.load(places, table, _record(load_id, batch, nonce), whole=whole)
        job = f"onceward_load_{_digest(self.name, load_id, table.name, batch.digest)}"
        number = -1
        while True:
            number = self._jobs.run(job, script, first=number + 1)
            loaded = self._answer(load_id, batch, nonce)
            if loaded is not None:
                return loaded  # else its record was deleted since: that job has done its work, and this is another load

    def _answer(self, load_id: str, batch: RowBatch, nonce: str) -> Loaded | None:
        found = self._jobs.rows(sql.find_load(self._quoted(LOADS)), load_id=load_id)
        if not found:
            return None
        name = batch.table.name
        table, digest, *did, whose = min(found, key=lambda row: row[0] != name)  # two tables at once under one id: ours
        loaded = replayed(load_id, batch, table, digest, tuple(did))
        return replace(loaded, replayed=False) if whose == nonce else loaded

    def _stage(self, staging: str, batch: RowBatch) -> None:
        columns = {column: sql.TYPES[kind] for column, kind in batch.table.columns.items()}
        self._make(self._place.dataset, staging, columns, expires=datetime.now(UTC) + STAGED_FOR)
        statement = sql.stage(self._quoted(staging), batch.table)
        for number, chunk in enumerate(_chunks(batch)):
            self._jobs.run(f"{staging}_{number}", statement, rows=chunk)

    def known(self, table: Table, keys: Sequence[Any]) -> set[Any]:
        return set(self.found(table, keys, ()))

    def found(self, table: Table, keys: Sequence[Any], columns: Sequence[str]) -> dict[Any, tuple[Any, ...]]:
        rows, wanted = wanted_keys(table, keys)
        dataset, name = self._parts(table)
        statement = sql.find_known(self._quoted(name, dataset), wanted.table, plain_columns(table, columns))
        answers = [row for chunk in _chunks(wanted) for row in self._jobs.rows(statement, rows=chunk)]
        return by_key(table, keys, rows, answers)

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """In the words of BigQuery; tables without a dataset are those of the URL's."""
        return self._jobs.answers(sql, values, f"{self._place.project}.{self._place.dataset}")

    def close(self) -> None:
        self.client.close()

    # ── tables ──

    def _make(self, dataset: str, name: str, columns: Mapping[str, str], expires: datetime | None = None) -> list[Any]:
        """The table's columns, of which it is made if it is not there."""
        table = self._driver.Table(
            self._id(name, dataset), [self._driver.SchemaField(column, kind) for column, kind in columns.items()]
        )
        table.expires = expires

        made = self._jobs.asked(lambda: self.client.create_table(table, exists_ok=True, **self._jobs.request))
        return list(made.schema)

    def _make_dataset(self, dataset: str) -> str | None:
        """Where it is. Asked for first: to make one takes a right that a loader need not have."""
        reference = f"{self._place.project}.{dataset}"

        def make() -> Any:
            try:
                return self.client.get_dataset(reference, **self._jobs.request)
            except self._driver.errors.NotFound:
                return self.client.create_dataset(reference, exists_ok=True, **self._jobs.request)

        location: str | None = self._jobs.asked(make).location
        return location

    def _parts(self, table: Table) -> tuple[str, str]:
        dataset, _, name = table.name.rpartition(".")
        return dataset or self._place.dataset, name

    def _id(self, name: str, dataset: str | None = None) -> str:
        return f"{self._place.project}.{dataset or self._place.dataset}.{name}"

    def _quoted(self, name: str, dataset: str | None = None) -> str:
        return f"`{self._id(name, dataset)}`"


def _kind(found: str) -> str:
    return FOUND_AS.get(found.lower(), found)


def _turns(name: str) -> str:
    """Beside the table, so that whoever loads into it takes the same turns, whichever dataset is their own."""
    return f"onceward_turn_{name}"


def _record(load_id: str, batch: RowBatch, nonce: str) -> dict[str, str]:
    """As the script writes it."""
    return {
        "load_id": sql.text(load_id),
        "table_name": f"'{batch.table.name}'",
        "digest": f"'{batch.digest}'",
        "given": str(batch.given),
        "kept": str(len(batch.rows)),
        "inserted": "added",
        "updated": "changed",
        "nonce": f"'{nonce}'",
        "loaded_at": "CURRENT_TIMESTAMP()",
    }


def _digest(*parts: str) -> str:
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:40]


def _chunks(batch: RowBatch) -> Iterator[str]:
    """The rows as JSON arrays, each short enough for one request."""
    columns = tuple(batch.table.columns.items())
    held: list[bytes] = []
    size = 0
    for row in batch.rows:
        text = msgspec.json.encode(_spelt(row, columns))
        if len(text) > CHUNK:
            raise SourceError(
                f"a row for {batch.table.name} has {len(text):,} bytes, and a request to BigQuery holds {CHUNK:,}",
                hint="keep what is so large in object storage, and its name in the row",
            )
        if held and size + len(text) > CHUNK:
            yield _array(held)
            held, size = [], 0
        held.append(text)
        size += len(text) + 1
    if held:
        yield _array(held)


def _array(rows: list[bytes]) -> str:
    return f"[{b','.join(rows).decode()}]"


def _spelt(row: Tuple, columns: Sequence[tuple[str, ColumnType]]) -> dict[str, str]:
    """Each value as a text that its type is cast from; what is missing is missing."""
    return {
        name: ("true" if value else "false") if isinstance(value, bool) else str(value)
        for (name, _), value in zip(columns, row, strict=True)
        if value is not None
    }

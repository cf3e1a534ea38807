"""BigQuery as a warehouse: rows are staged by parameterised jobs, and merged in one transaction under a derived job id.

    look up   SELECT: if the load was done before, return its record
    stage     a staging table of this call, filled by jobs of at most a few megabytes
    merge     one job: the turn counter, the MERGE and the record commit together, or not at all
    answer    SELECT: return the record

The record decides; the job ids save work. A job that is sent again under its id is the same job, so a lost reply costs
nothing, and two processes with the same load wait for one job. A failed job stays failed: the next attempt uses the
next number.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import repeat
from typing import Any, Final

import msgspec
from google.api_core.exceptions import NotFound
from google.auth.credentials import AnonymousCredentials
from google.auth.exceptions import GoogleAuthError
from google.cloud import bigquery
from msgspec.structs import replace

from onceward.errors import SourceError, StoreBroken, StoreError, StoreNotSetUp

from . import bigquery_sql as sql
from .batch import RowBatch, Tuple, batch_of, json_lists
from .bigquery_jobs import Jobs
from .bigquery_url import parse
from .load import (
    LOADS,
    check_columns,
    check_load,
    check_selectable,
    key_batch,
    replay_result,
    results_by_key,
    row_refused,
)
from .port import Fingerprinting, Loaded, Merged
from .row_merge import Rows
from .table import Table

STAGED_FOR: Final = timedelta(hours=6)
"""BigQuery deletes the staging tables of killed loaders after this time."""

CHUNK: Final = 3_000_000
"""Bytes of rows in a request. Escaping makes them at most three times as large; BigQuery accepts ten million."""

TYPE_NAMES: Final = {"timestamp": "timestamp with time zone", "datetime": "timestamp"}
"""BigQuery's type names that have another meaning elsewhere."""

ROW_ERRORS: Final = ("null", "constraint", "out of range", "overflow")
"""Words in BigQuery's message if a row, not the statement, is at fault."""


class BigQueryWarehouse:
    """Any number of loaders and processes may use it. Loads into the same table run one after the other."""

    def __init__(self, url: str) -> None:
        self._address = address = parse(url)
        self.name = address.name
        self.client = self._connect()
        self._jobs = Jobs(self.client, self.name, address.timeout)
        self._jobs.location = self._create_dataset(address.dataset)  # needed to find jobs in other regions
        self._create_table(address.dataset, LOADS, sql.LOADS)

    def _connect(self) -> Any:
        address = self._address
        settings: dict[str, Any] = {}
        if address.endpoint is not None:
            anonymous = AnonymousCredentials()  # type: ignore[no-untyped-call]
            settings = {"credentials": anonymous, "client_options": {"api_endpoint": address.endpoint}}
        try:
            return bigquery.Client(address.project, location=address.location, **settings)
        except GoogleAuthError as error:
            raise StoreNotSetUp(
                f"{self.name}: credentials are missing ({error})",
                hint="set GOOGLE_APPLICATION_CREDENTIALS, or log in with gcloud",
            ) from error

    def prepare(self, table: Table) -> None:
        dataset, name = self._parts(table)
        if dataset != self._address.dataset:
            self._create_dataset(dataset)
        columns = {column: sql.TYPES[kind] for column, kind in table.columns.items()}
        found = self._create_table(dataset, name, columns)
        check_columns(table, {field.name: _kind(field.field_type) for field in found})
        self._create_table(dataset, _turn_counter(name), sql.TURN)
        counter = self._quoted(_turn_counter(name), dataset)
        if not self._jobs.rows(f"SELECT turn FROM {counter} LIMIT 1"):
            self._jobs.run(f"onceward_turn_{uuid.uuid4().hex}", sql.first_turn(counter))

    def load(
        self, load_id: str, table: Table, rows: Iterable[Mapping[str, Any]], *, fingerprint: Fingerprinting = "rows"
    ) -> Loaded:
        batch = check_load(load_id, batch_of(table, rows), fingerprint)
        nonce = uuid.uuid4().hex
        before = self._find_load(load_id, batch, nonce)
        if before is not None:
            return before
        staging = f"onceward_staging_{nonce}"
        self.stage(staging, batch)
        try:
            loaded = self._merge_staged(load_id, batch, staging, nonce)
        except StoreBroken as error:
            if any(word in str(error).lower() for word in ROW_ERRORS):
                raise row_refused(table, load_id, error) from error
            raise
        self._drop(staging)
        return loaded

    def merge(self, table: Table, rows: Iterable[Mapping[str, Any]], *, whole: bool = False) -> Merged:
        """Merge the rows as on every engine. The merge is recorded among the loads, under a generated id."""
        given = Rows(table, rows)
        merge = _RowMerge(self, whole=whole)
        try:
            return given.merge(merge, whole=whole)
        finally:
            for staging in merge.staged:
                self._drop(staging)

    def _drop(self, staging: str) -> None:
        with suppress(StoreError):  # the load is done, and the table expires by itself
            self._jobs.retry_request(
                lambda: self.client.delete_table(self._id(staging), not_found_ok=True, **self._jobs.request)
            )

    def _merge_staged(self, load_id: str, batch: RowBatch, staging: str, nonce: str, *, whole: bool = False) -> Loaded:
        table = batch.table
        dataset, name = self._parts(table)
        tables = sql.LoadTables(
            self._quoted(name, dataset),
            self._quoted(staging),
            self._quoted(LOADS),
            self._quoted(_turn_counter(name), dataset),
        )
        script = sql.load(tables, table, _record(load_id, batch, nonce), whole=whole)
        job = f"onceward_load_{_digest(self.name, load_id, table.name, batch.digest)}"
        number = -1
        while True:
            number = self._jobs.run(job, script, first=number + 1)
            loaded = self._find_load(load_id, batch, nonce)
            if loaded is not None:
                return loaded  # otherwise the record was deleted after that job: this is another load

    def merge_pass(self, batch: RowBatch, staging: str, *, whole: bool) -> tuple[set[Tuple], set[Tuple]]:
        """Merge staged rows. Return the keys that existed before, and the keys whose rows differ."""
        dataset, name = self._parts(batch.table)
        names = self._quoted(name, dataset), self._quoted(staging), batch.table
        before = set(self._jobs.rows(sql.find_staged(*names)))
        nonce = staging.rpartition("_")[2]
        self._merge_staged(f"merge {nonce}", batch, staging, nonce, whole=whole)
        return before, set(self._jobs.rows(sql.find_differing(*names)))

    def _find_load(self, load_id: str, batch: RowBatch, nonce: str) -> Loaded | None:
        found = self._jobs.rows(sql.find_load(self._quoted(LOADS)), load_id=load_id)
        if not found:
            return None
        name = batch.table.name
        own = min(found, key=lambda row: row[0] != name)  # two tables may have used one id at the same time
        table, digest, *counts, load_nonce = own
        loaded = replay_result(load_id, batch, table, digest, tuple(counts))
        return replace(loaded, replayed=False) if load_nonce == nonce else loaded

    def stage(self, staging: str, batch: RowBatch) -> None:
        columns = {column: sql.TYPES[kind] for column, kind in batch.table.columns.items()}
        self._create_table(self._address.dataset, staging, columns, expires=datetime.now(UTC) + STAGED_FOR)
        statement = sql.stage(self._quoted(staging), batch.table)
        for number, chunk in enumerate(_chunks(batch)):
            self._jobs.run(f"{staging}_{number}", statement, rows=chunk)

    def known(self, table: Table, keys: Sequence[Any]) -> set[Any]:
        return set(self.found(table, keys, ()))

    def found(self, table: Table, keys: Sequence[Any], columns: Sequence[str]) -> dict[Any, tuple[Any, ...]]:
        rows, wanted = key_batch(table, keys)
        dataset, name = self._parts(table)
        statement = sql.find_known(self._quoted(name, dataset), wanted.table, check_selectable(table, columns))
        answers = [row for chunk in _chunks(wanted) for row in self._jobs.rows(statement, rows=chunk)]
        return results_by_key(table, keys, rows, answers)

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a query in BigQuery's SQL. Tables without a dataset are in the URL's dataset."""
        return self._jobs.query(sql, values, f"{self._address.project}.{self._address.dataset}")

    def close(self) -> None:
        self.client.close()

    # ── tables ──

    def _create_table(
        self, dataset: str, name: str, columns: Mapping[str, str], expires: datetime | None = None
    ) -> list[Any]:
        """Create the table if it does not exist. Return its columns."""
        table = bigquery.Table(
            self._id(name, dataset), [bigquery.SchemaField(column, kind) for column, kind in columns.items()]
        )
        table.expires = expires

        created = self._jobs.retry_request(
            lambda: self.client.create_table(table, exists_ok=True, **self._jobs.request)
        )
        return list(created.schema)

    def _create_dataset(self, dataset: str) -> str | None:
        """Create the dataset if it does not exist, and return its location.

        It is looked up first: creating one needs a permission that a loader need not have.
        """
        reference = f"{self._address.project}.{dataset}"

        def create() -> Any:
            try:
                return self.client.get_dataset(reference, **self._jobs.request)
            except NotFound:
                return self.client.create_dataset(reference, exists_ok=True, **self._jobs.request)

        location: str | None = self._jobs.retry_request(create).location
        return location

    def _parts(self, table: Table) -> tuple[str, str]:
        dataset, _, name = table.name.rpartition(".")
        return dataset or self._address.dataset, name

    def _id(self, name: str, dataset: str | None = None) -> str:
        return f"{self._address.project}.{dataset or self._address.dataset}.{name}"

    def _quoted(self, name: str, dataset: str | None = None) -> str:
        return f"`{self._id(name, dataset)}`"


class _RowMerge:
    """Finds the existing rows, merges in one transaction, then finds the rows that differ.

    Merged rows are never deleted or changed here, so what is read outside of the transaction stays true. If two
    processes merge the same row at the same time, both may report `inserted`. If their rows differ, only one does.
    """

    def __init__(self, warehouse: BigQueryWarehouse, *, whole: bool) -> None:
        self._warehouse = warehouse
        self._whole = whole
        self._differ: set[Tuple] = set()
        self.staged: list[str] = []  # one table per pass: the job that fills a table runs once under its id

    def stage(self, batch: RowBatch) -> None:
        self._batch = batch
        self.staged.append(f"onceward_staging_{uuid.uuid4().hex}")
        self._warehouse.stage(self.staged[-1], batch)

    def insert(self, table: Table) -> set[Tuple]:
        names = tuple(table.columns)
        indexes = [names.index(column) for column in table.key]
        before, self._differ = self._warehouse.merge_pass(self._batch, self.staged[-1], whole=self._whole)
        return {tuple(row[index] for index in indexes) for row in self._batch.rows} - before - self._differ

    def differing(self, table: Table) -> set[Tuple]:  # noqa: ARG002 (`insert` has queried it)
        return self._differ


def _kind(found: str) -> str:
    return TYPE_NAMES.get(found.lower(), found)


def _turn_counter(name: str) -> str:
    """Return the name of the turn counter. It is in the table's dataset, so that all loaders use the same one."""
    return f"onceward_turn_{name}"


def _record(load_id: str, batch: RowBatch, nonce: str) -> dict[str, str]:
    """Return the columns of the load's record as SQL expressions."""
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
    """Return the rows as JSON arrays, each small enough for one request."""
    return json_lists(map(_encoded, repeat(batch.table), batch.rows), CHUNK) if batch.rows else iter(())


def _encoded(table: Table, row: Tuple) -> bytes:
    """Return the row as a JSON object of texts, to be cast to their types. Missing values are omitted."""
    texts = {
        name: ("true" if value else "false") if isinstance(value, bool) else str(value)
        for name, value in zip(table.columns, row, strict=True)
        if value is not None
    }
    encoded = msgspec.json.encode(texts)
    if len(encoded) > CHUNK:
        raise SourceError(
            f"a row for {table.name} has {len(encoded):,} bytes; the limit for BigQuery is {CHUNK:,}",
            hint="store large values in object storage, and their names in the row",
        )
    return encoded

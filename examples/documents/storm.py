"""The storm test of this example.

Documents are delivered several times, renamed each time, to workers that are killed or paused. The audit then counts
files and rows.
"""

from __future__ import annotations

import os
import random
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final

from examples.documents.models import STRONG, Models, Unreadable, extract
from examples.documents.pipeline import Documents, file_name, is_settled
from examples.documents.samples import BLOCKED, lines, pdf
from examples.documents.stand_in import stand_in
from examples.documents.text import text_of
from onceward import Once, content_key
from onceward.objects import open_objects
from onceward.testing.storm import Audit, Effect, HandlerResult, StormEvent, StormSetting
from onceward.warehouse import open_warehouse

COLUMNS: Final = "id text, company text CHECK (company <> '{blocked}'), date text, cents bigint, file text"
SLOW: Final = "Takes 2.5"
"""Longer than any lease of a storm: the model blocks, and the heartbeat continues."""


class StormDatabase:
    """The databases of a run, for records and rows: files in its folder, or a schema on the given server."""

    def __init__(self, setting: StormSetting) -> None:
        self._server = setting.store if setting.store.startswith("postgres") else ""
        self._schema = f"storm_{setting.run}"
        url = f"{self._server}{'&' if '?' in self._server else '?'}schema={self._schema}"
        self._file = Path(setting.folder, "warehouse.db")
        self._records_file = Path(setting.folder, "once.db")
        self._is_guarded = setting.guarded
        self.table = f"{self._schema}.documents" if self._server else "documents"
        self.records = f"{url}&migrate=1" if self._server else setting.store or f"sqlite:///{setting.folder}/once.db"
        self.warehouse = url if self._server else f"sqlite:///{self._file}"

    @contextmanager
    def create(self, *, unique: bool) -> Iterator[None]:
        if self._server:
            self.query(f"CREATE SCHEMA {self._schema}")
        columns = COLUMNS.format(blocked=BLOCKED)
        self.query(f"CREATE TABLE {self.table} (hash text{' PRIMARY KEY' * unique}, {columns})")
        try:
            yield
        finally:
            if self._server:
                self.query(f"DROP SCHEMA {self._schema} CASCADE")

    def query(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a statement directly, without Onceward."""
        if self._server:
            import psycopg

            with psycopg.connect(self._server) as server:
                cursor = server.execute(statement.replace("?", "%s").encode(), values)
                return cursor.fetchall() if cursor.description else []
        return _query_file(self._file, statement, values)

    def failed_at(self) -> dict[str, int]:
        """Return when each document finally failed, in µs. Only for records in a database that SQL can read."""
        statement = "SELECT key, updated_at FROM {}onceward_records WHERE state = 'FAILED'"
        if self._server and self._is_guarded:
            return dict(self.query(statement.format(f"{self._schema}.")))
        return dict(_query_file(self._records_file, statement.format(""))) if self._records_file.exists() else {}


def _query_file(file: Path, statement: str, values: Sequence[Any] = ()) -> list[Any]:
    with closing(sqlite3.connect(file, timeout=60)) as connection, connection:
        return connection.execute(statement, values).fetchall()


class Storm:
    """The system under test: its effects, events, workers and audit."""

    name = "documents"
    effects: Sequence[Effect] = (
        Effect("file in the object store", "once: created under its content, never overwritten"),
        Effect("row in the warehouse", "once: merged under the document's hash"),
        Effect("model call, file of a replaced owner that was refused meanwhile", "at least once: counted"),
    )

    @contextmanager
    def open(self, setting: StormSetting) -> Iterator[dict[str, str]]:
        for name in ("inbox", "bucket"):
            Path(setting.folder, name).mkdir()
        with StormDatabase(setting).create(unique=setting.guarded), stand_in(Path(setting.folder, "calls")) as models:
            yield {"models": models}

    def events(self, dice: random.Random) -> Iterator[StormEvent]:
        printed: list[str] = []
        for number in count(1):
            same_name = number % 25 == 24  # another document whose file would have the same name
            printed = [*printed, "Page 2"] if same_name else lines(number, dice)
            yield StormEvent(f"document {number}", [*printed, SLOW] if number % 50 == 20 else printed)

    def worker(self, setting: StormSetting) -> Callable[[StormEvent], HandlerResult]:
        handle = (guarded if setting.guarded else unguarded)(setting)
        numbers = count(1)

        def deliver(event: StormEvent) -> HandlerResult:
            path = Path(setting.folder, "inbox", f"{os.getpid()}-{next(numbers)}.pdf")  # a renamed file each time
            path.write_bytes(pdf(event.body))
            answer = handle(path)
            path.unlink()
            return answer

        return deliver

    def audit(self, setting: StormSetting, events: Sequence[StormEvent]) -> Audit:
        ids = {content_key(pdf(event.body)): event.id for event in events}
        files = {path.name: content_key(path) for path in Path(setting.folder, "bucket").glob("*.pdf")}
        table = StormDatabase(setting).table
        rows = StormDatabase(setting).query(f"SELECT hash, file, id, date, cents FROM {table}")
        late = late_files(setting, files)
        effects = [f"{ids.get(content)}: file" for name, content in files.items() if name not in late]
        effects += [f"{ids.get(content)}: row" for content, *_ in rows]
        wrong = [
            f"{ids.get(content)}: the row names {name}" for content, name, *_ in rows if files.get(name) != content
        ]
        printed = {content_key(pdf(event.body)): printed_facts(event.body) for event in events}
        wrong += [f"{ids.get(content)}: {facts}" for content, _, *facts in rows if printed.get(content) != tuple(facts)]
        wrong += [
            f"{name} is not a file name for {id}" for _, name, id, date, _ in rows if not _is_file_name(name, id, date)
        ]
        calls = [line.split() for line in Path(setting.folder, "calls").read_text().splitlines()]
        asked = Counter(tuple(call) for call in calls if call[0] == "200")
        counted = {
            "model calls": asked.total(),
            "calls of the strong model among them": sum(model == STRONG for _, model, _ in asked.elements()),
            "model calls wasted": asked.total() - len(asked),  # repeated: the answer was lost with a worker
            "refusals (429) of the models' API": len(calls) - asked.total(),
            "files of owners that had been replaced": len(late),
        }
        valid = [event for event in events if f"Company {BLOCKED}" not in event.body and "Company" not in event.body]
        wanted = [StormEvent(f"{event.id}: {effect}") for event in valid for effect in ("file", "row")]
        return Audit.of(wanted, effects, wrong=wrong, counted=counted)


def late_files(setting: StormSetting, files: Mapping[str, str]) -> set[str]:
    """Return the files that were written after their document had finally failed.

    This happens if a worker is paused right before its `put` for longer than its lease. Meanwhile another worker
    uploads the document, the warehouse rejects its row, and that worker removes the file. Onceward cannot prevent the
    late `put`: an object store does not check tokens.
    """
    failed_at = StormDatabase(setting).failed_at()
    bucket = Path(setting.folder, "bucket")
    return {
        name
        for name, content in files.items()
        if content in failed_at and (bucket / name).stat().st_ctime_ns > 1_000 * failed_at[content]
    }


def printed_facts(body: list[str]) -> tuple[str, str, int] | None:
    """Return number, date and total as printed on an invoice, without a model."""
    printed = dict(line.split(" ", 1) for line in body if line.startswith(("Invoice ", "Date ")))
    if "Invoice" not in printed:
        return None
    day = printed["Date"]
    date = day if day[4] == "-" else "-".join(reversed(day.split(".")))
    return printed["Invoice"], date, sum(int(line.split()[1]) for line in body if line.startswith("Item "))


def _is_file_name(name: str, id: str, date: str) -> bool:
    """Whether the name is `ID_Company_Date.pdf`, perhaps with a hash."""
    return name.startswith(f"{id}_") and f"_{date}" in name and name.endswith(".pdf")


def guarded(setting: StormSetting) -> Callable[[Path], HandlerResult]:
    database = StormDatabase(setting)
    once = Once(database.records, app=f"documents {setting.run}", lease=setting.lease, counters=True)
    objects = open_objects(Path(setting.folder, "bucket").as_uri())
    models = Models(setting.services["models"], pause=0.02)
    documents = Documents(once, objects, open_warehouse(database.warehouse), models)

    def handle(path: Path) -> HandlerResult:
        outcome = documents.process(path)
        answer = HandlerResult.of(outcome)
        retried = outcome.kind in ("failed", "parked") and not is_settled(outcome)  # by the next delivery
        return HandlerResult("failed", why=answer.why) if retried else answer

    return handle


def unguarded(setting: StormSetting) -> Callable[[Path], HandlerResult]:
    """Do the same work as it is often written: check whether the file name is free, then insert the row."""
    database, bucket = StormDatabase(setting), Path(setting.folder, "bucket")
    models = Models(setting.services["models"], pause=0.02)

    def handle(path: Path) -> HandlerResult:
        try:
            invoice = extract(models, text_of(path), lambda: None)
        except Unreadable:
            return HandlerResult("rejected")
        names = (f"{number or ''}{file_name(invoice)}" for number in count())
        file = next(bucket / name for name in names if not (bucket / name).exists())
        file.write_bytes(path.read_bytes())
        if invoice.company == BLOCKED:
            return HandlerResult("rejected")
        row = (content_key(path), invoice.id, invoice.company, invoice.date, invoice.cents, file.name)
        database.query(f"INSERT INTO {database.table} VALUES (?, ?, ?, ?, ?, ?)", row)
        return HandlerResult("executed")

    return handle


SYSTEM = Storm()

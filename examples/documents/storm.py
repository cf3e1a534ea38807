"""The documents in a storm: delivered twice and more, renamed each time, to workers that die or sleep; then counted."""

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
from onceward.testing.storm import Answer, Audit, Effect, Event, Setting
from onceward.warehouse import open_warehouse

COLUMNS: Final = "id text, company text CHECK (company <> '{blocked}'), date text, cents bigint, file text"
SLOW: Final = "Takes 2.5"
"""Longer than any lease of a storm: the model blocks, and the heartbeat goes on."""


class Place:
    """Where the records and the rows of a run are: in its folder, or on the server that was named."""

    def __init__(self, setting: Setting) -> None:
        self._server = setting.store if setting.store.startswith("postgres") else ""
        self._schema = f"storm_{setting.run}"
        own = f"{self._server}{'&' if '?' in self._server else '?'}schema={self._schema}"
        self._file = Path(setting.folder, "house.db")
        self._own_records = Path(setting.folder, "once.db")
        self._is_guarded = setting.guarded
        self.table = f"{self._schema}.documents" if self._server else "documents"
        self.records = f"{own}&migrate=1" if self._server else setting.store or f"sqlite:///{setting.folder}/once.db"
        self.warehouse = own if self._server else f"sqlite:///{self._file}"

    @contextmanager
    def made(self, *, unique: bool) -> Iterator[None]:
        if self._server:
            self.query(f"CREATE SCHEMA {self._schema}")
        kept = COLUMNS.format(blocked=BLOCKED)
        self.query(f"CREATE TABLE {self.table} (hash text{' PRIMARY KEY' * unique}, {kept})")
        try:
            yield
        finally:
            if self._server:
                self.query(f"DROP SCHEMA {self._schema} CASCADE")

    def query(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Past Onceward."""
        if self._server:
            import psycopg

            with psycopg.connect(self._server) as server:
                cursor = server.execute(statement.replace("?", "%s").encode(), values)
                return cursor.fetchall() if cursor.description else []
        return _queried(self._file, statement, values)

    def given_up(self) -> dict[str, int]:
        """When it was settled that a document is not stored, in µs. Only told by records that SQL can read."""
        told = "SELECT key, updated_at FROM {}onceward_records WHERE state = 'FAILED'"
        if self._server and self._is_guarded:
            return dict(self.query(told.format(f"{self._schema}.")))
        return dict(_queried(self._own_records, told.format(""))) if self._own_records.exists() else {}


def _queried(file: Path, statement: str, values: Sequence[Any] = ()) -> list[Any]:
    with closing(sqlite3.connect(file, timeout=60)) as connection, connection:
        return connection.execute(statement, values).fetchall()


class Storm:
    """What the storm needs to know about documents."""

    name = "documents"
    effects: Sequence[Effect] = (
        Effect("file in the object store", "once: created under its content, never overwritten"),
        Effect("row in the warehouse", "once: merged under the document's hash"),
        Effect("model call, file of a replaced owner that was refused meanwhile", "at least once: counted"),
    )

    @contextmanager
    def open(self, setting: Setting) -> Iterator[dict[str, str]]:
        for name in ("inbox", "bucket"):
            Path(setting.folder, name).mkdir()
        with Place(setting).made(unique=setting.guarded), stand_in(Path(setting.folder, "calls")) as models:
            yield {"models": models}

    def events(self, dice: random.Random) -> Iterator[Event]:
        printed: list[str] = []
        for number in count(1):
            twin = number % 25 == 24  # another document whose file would have the same name
            printed = [*printed, "Page 2"] if twin else lines(number, dice)
            yield Event(f"document {number}", [*printed, SLOW] if number % 50 == 20 else printed)

    def worker(self, setting: Setting) -> Callable[[Event], Answer]:
        handle = (guarded if setting.guarded else by_hand)(setting)
        numbers = count(1)

        def delivered(event: Event) -> Answer:
            path = Path(setting.folder, "inbox", f"{os.getpid()}-{next(numbers)}.pdf")  # a renamed file each time
            path.write_bytes(pdf(event.body))
            answer = handle(path)
            path.unlink()
            return answer

        return delivered

    def audit(self, setting: Setting, events: Sequence[Event]) -> Audit:
        ids = {content_key(pdf(event.body)): event.id for event in events}
        files = {path.name: content_key(path) for path in Path(setting.folder, "bucket").glob("*.pdf")}
        table = Place(setting).table
        rows = Place(setting).query(f"SELECT hash, file, id, date, cents FROM {table}")
        late = left_behind(setting, files)
        effects = [f"{ids.get(content)}: file" for name, content in files.items() if name not in late]
        effects += [f"{ids.get(content)}: row" for content, *_ in rows]
        wrong = [
            f"{ids.get(content)}: the row names {name}" for content, name, *_ in rows if files.get(name) != content
        ]
        printed = {content_key(pdf(event.body)): said_by(event.body) for event in events}
        wrong += [f"{ids.get(content)}: {told}" for content, _, *told in rows if printed.get(content) != tuple(told)]
        wrong += [f"{name} is no name for {id}" for _, name, id, date, _ in rows if not _fits(name, id, date)]
        calls = [line.split() for line in Path(setting.folder, "calls").read_text().splitlines()]
        asked = Counter(tuple(call) for call in calls if call[0] == "200")
        counted = {
            "model calls": asked.total(),
            "calls of the strong model among them": sum(model == STRONG for _, model, _ in asked.elements()),
            "model calls wasted": asked.total() - len(asked),  # asked before: the answer died with a worker
            "refusals (429) of the models' API": len(calls) - asked.total(),
            "files of owners that had been replaced": len(late),
        }
        meant = [event for event in events if f"Company {BLOCKED}" not in event.body and "Company" not in event.body]
        wanted = [Event(f"{event.id}: {effect}") for event in meant for effect in ("file", "row")]
        return Audit.of(wanted, effects, wrong=wrong, counted=counted)


def left_behind(setting: Setting, files: Mapping[str, str]) -> set[str]:
    """Files that came after it was settled that there is none.

    Whoever is stopped right before its `put`, for longer than its lease, while another one publishes the document, is
    refused its row and takes everything back, cannot be kept from that: an object store knows nothing of tokens.
    """
    given_up = Place(setting).given_up()
    bucket = Path(setting.folder, "bucket")
    return {
        name
        for name, content in files.items()
        if content in given_up and (bucket / name).stat().st_ctime_ns > 1_000 * given_up[content]
    }


def said_by(body: list[str]) -> tuple[str, str, int] | None:
    """Number, date and total of an invoice as it is printed; worked out without any model."""
    said = dict(line.split(" ", 1) for line in body if line.startswith(("Invoice ", "Date ")))
    if "Invoice" not in said:
        return None
    day = said["Date"]
    date = day if day[4] == "-" else "-".join(reversed(day.split(".")))
    return said["Invoice"], date, sum(int(line.split()[1]) for line in body if line.startswith("Item "))


def _fits(name: str, id: str, date: str) -> bool:
    """`ID_Company_Date.pdf`, perhaps with a mark."""
    return name.startswith(f"{id}_") and f"_{date}" in name and name.endswith(".pdf")


def guarded(setting: Setting) -> Callable[[Path], Answer]:
    place = Place(setting)
    once = Once(place.records, app=f"documents {setting.run}", lease=setting.lease)
    objects = open_objects(Path(setting.folder, "bucket").as_uri())
    models = Models(setting.services["models"], pause=0.02)
    documents = Documents(once, objects, open_warehouse(place.warehouse), models)

    def handle(path: Path) -> Answer:
        outcome = documents.process(path)
        answer = Answer.of(outcome)
        given_up = outcome.kind in ("failed", "parked") and not is_settled(outcome)  # the next delivery tries again
        return Answer("failed", why=answer.why) if given_up else answer

    return handle


def by_hand(setting: Setting) -> Callable[[Path], Answer]:
    """The same work as it is often written: it looks whether the name is taken, and inserts."""
    place, bucket = Place(setting), Path(setting.folder, "bucket")
    models = Models(setting.services["models"], pause=0.02)

    def handle(path: Path) -> Answer:
        try:
            invoice = extract(models, text_of(path), lambda: None)
        except Unreadable:
            return Answer("rejected")
        names = (f"{number or ''}{file_name(invoice)}" for number in count())
        file = next(bucket / name for name in names if not (bucket / name).exists())
        file.write_bytes(path.read_bytes())
        if invoice.company == BLOCKED:
            return Answer("rejected")
        row = (content_key(path), invoice.id, invoice.company, invoice.date, invoice.cents, file.name)
        place.query(f"INSERT INTO {place.table} VALUES (?, ?, ?, ?, ?, ?)", row)
        return Answer("executed")

    return handle


SYSTEM = Storm()

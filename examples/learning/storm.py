"""The learning records in a storm: statements in any wording and order, several times; workers are killed or paused.

With files, the workers send HTTP requests to one server, because only one process can open a DuckDB file. That server
is killed and restarted repeatedly, too. With PostgreSQL, every worker merges by itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import sqlite3
import subprocess
import sys
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from examples.learning import records
from examples.learning.consumer import decode_message
from examples.learning.endpoint import PATH, REPLAYED
from examples.learning.storage import open_storage
from examples.learning.tables import STATEMENTS
from examples.learning.unguarded import UNGUARDED_STATEMENTS, UnguardedLearning
from onceward.queues import Message
from onceward.testing.storm import Audit, Effect, HandlerResult, StormEvent, StormSetting
from onceward.testing.storm.contract import ResultKind

CREDENTIALS = "storm:secret"
CONFLICT_EVERY = 6  # every sixth statement comes in two versions, of which only one can be stored
USERS = 12
SERVER_LIFETIME = (1.0, 5.0)  # seconds
RETRY_DELAY = 0.1
ANSWERS_BY_VERDICT: dict[str, ResultKind] = {"inserted": "executed", "same": "replayed", "different": "rejected"}
ANSWERS_BY_STATUS: dict[int, ResultKind] = {204: "executed", 409: "rejected"}
AUDIT_COLUMNS = "statement_id, CAST(statement AS JSON)->'result'->>'response'"
USER_COUNT = "count(*) FROM onceward_people WHERE merged_into IS NULL"
ZONES = ("Z", "+00:00", ".000Z", ".0+00:00")


class Learning:
    """Checks that there is one row per statement and one user per person, whatever happens."""

    name = "learning"
    effects = (
        Effect("row in statements", "once: merged by its id, and an equal row changes nothing"),
        Effect("user record", "once: looked up by its identifiers before it is created"),
        Effect("of two statements with one id", "one stored, the other rejected"),
    )

    def __init__(self) -> None:
        self._server: Server | None = None

    @contextmanager
    def open(self, setting: StormSetting) -> Iterator[dict[str, str]]:
        self._server = None
        if _on_server(setting):
            _make_schema(setting)
            with open_storage(Path(setting.folder), _server(setting)):  # creates the tables
                yield {}
            return
        self._server = Server(setting)
        try:
            yield {"lrs": self._server.start()}
        finally:
            self._server.stop()

    def events(self, dice: random.Random) -> Iterator[StormEvent]:
        number = 0
        while True:
            number += 1
            statement = _statement(number, dice)
            if number % CONFLICT_EVERY:
                yield StormEvent(f"{number}", statement)
            else:
                for version in ("a", "b"):
                    yield StormEvent(f"{number}{version}", {**statement, "result": {"response": f"{number}{version}"}})

    def worker(self, setting: StormSetting) -> Callable[[StormEvent], HandlerResult]:
        dice = random.Random()
        handle = _direct_handler(setting) if _on_server(setting) else _http_handler(setting)
        return lambda event: handle(_reworded(event.body, dice), event.id)

    def audit(self, setting: StormSetting, events: Sequence[StormEvent]) -> Audit:
        """Count with the databases' own drivers, not with Onceward."""
        if self._server is not None:
            self._server.stop()
        rows, users = (_read_postgres if _on_server(setting) else _read_files)(setting)
        sent: dict[str, set[str]] = {}
        for event in events:
            sent.setdefault(event.body["id"], set()).add(event.body["result"]["response"])
        wrong = [f"{id}: {response!r} was never sent" for id, response in rows if response not in sent.get(id, ())]
        people = len({_person(event.body["actor"]) for event in events})
        if setting.guarded and users != people:
            wrong.append(f"{users} users instead of {people}")
        counted = {} if self._server is None else {"kills of the server": self._server.kills}
        return Audit.of([StormEvent(id) for id in sent], [id for id, _ in rows], wrong=wrong, counted=counted)


SYSTEM = Learning()


# ── the statements ──


def _statement(number: int, dice: random.Random) -> dict[str, Any]:
    user = dice.randrange(USERS)
    account = {"homePage": "https://lms.example.com", "name": f"{user}"}
    actor = {"mbox": f"mailto:user{user}@example.com"} if user % 3 else {"account": account}
    return {
        "id": str(UUID(int=dice.getrandbits(128), version=4)),
        "actor": actor,
        "verb": {"id": "http://adlnet.gov/expapi/verbs/answered"},
        "object": {"id": f"https://example.com/questions/{dice.randrange(50)}"},
        "result": {"response": f"{number}"},
        "timestamp": f"2026-03-01T{number // 3600 % 24:02}:{number // 60 % 60:02}:{number % 60:02}Z",
    }


def _reworded(original: dict[str, Any], dice: random.Random) -> dict[str, Any]:
    """Return an equal statement as another sender would write it."""
    shown = {"display": {"en": dice.choice(("answered", "has answered"))}} if dice.random() < 0.5 else {}
    return {
        **original,
        "verb": {**original["verb"], **shown},
        "timestamp": original["timestamp"].replace("Z", dice.choice(ZONES)),
    }


def _person(actor: dict[str, Any]) -> str:
    return json.dumps(actor, sort_keys=True)


# ── the workers ──


def _direct_handler(setting: StormSetting) -> Callable[[dict[str, Any], str], HandlerResult]:
    kind = records.Learning if setting.guarded else UnguardedLearning
    storage = contextlib.ExitStack().enter_context(open_storage(Path(setting.folder), _server(setting), kind))

    def handle(statement: dict[str, Any], name: str) -> HandlerResult:
        statements = decode_message(Message(json.dumps(statement).encode(), name))
        [verdict] = storage.learning.store(statements).verdicts
        return HandlerResult(ANSWERS_BY_VERDICT[verdict])

    return handle


def _http_handler(setting: StormSetting) -> Callable[[dict[str, Any], str], HandlerResult]:
    address = setting.services["lrs"]
    headers = {
        "Authorization": f"Basic {b64encode(CREDENTIALS.encode()).decode()}",
        "X-Experience-API-Version": "1.0.3",
        "Content-Type": "application/json",
    }

    def handle(statement: dict[str, Any], _name: str) -> HandlerResult:
        server = HTTPConnection(address, timeout=20)
        try:
            server.request("PUT", f"{PATH}?statementId={statement['id']}", json.dumps(statement), headers)
            answer = server.getresponse()
            body = answer.read()
        except (OSError, HTTPException) as error:  # it was just killed, and will be restarted
            time.sleep(RETRY_DELAY)
            return HandlerResult("failed", why=repr(error))
        finally:
            server.close()
        if answer.status in ANSWERS_BY_STATUS:
            return HandlerResult("replayed" if answer.getheader(REPLAYED[0]) else ANSWERS_BY_STATUS[answer.status])
        return HandlerResult("failed", why=f"{answer.status}: {body[:200]!r}")

    return handle


class Server:
    """The process that opens the files. Killed at random; every acknowledged statement must exist afterwards."""

    def __init__(self, setting: StormSetting) -> None:
        self._setting = setting
        self._stopped = threading.Event()
        self._process: subprocess.Popen[str] | None = None
        self._killer = threading.Thread(target=self._kill_repeatedly, daemon=True)
        self._port = 0
        self.kills = 0

    def start(self) -> str:
        address = self._start_process()
        self._port = int(address.rpartition(":")[2])
        self._killer.start()
        return address

    def stop(self) -> None:
        """Stop it with a kill, too: the last acknowledged statements must also survive."""
        self._stopped.set()
        if self._killer.ident is not None:
            self._killer.join()
        self._kill_process()

    def _start_process(self) -> str:
        command = [sys.executable, "-m", "examples.learning", "serve", "--folder", self._setting.folder]
        command += [
            "--leashed",
            "--log-level",
            "error",
            "--user",
            CREDENTIALS,
            "--port",
            str(self._port),
            *([] if self._setting.guarded else ["--unguarded"]),
        ]
        found = os.pathsep.join(filter(None, sys.path))  # so that it can import what this process can
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": found}
        )
        assert self._process.stdout is not None
        address = self._process.stdout.readline().strip()
        if not address:
            raise RuntimeError("the server did not start")
        return urlsplit(address).netloc

    def _kill_repeatedly(self) -> None:
        dice = random.Random()
        while not self._stopped.wait(dice.uniform(*SERVER_LIFETIME)):
            self._kill_process()
            self._start_process()

    def _kill_process(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            self.kills += 1
            for pipe in filter(None, (process.stdin, process.stdout)):
                pipe.close()


# ── the audit ──


def _read_files(setting: StormSetting) -> tuple[list[tuple[str, str]], int]:
    import duckdb

    with duckdb.connect(f"{setting.folder}/house.duckdb") as house:
        rows = house.execute(f"SELECT {AUDIT_COLUMNS} FROM {_table(setting)}").fetchall()
    with closing(sqlite3.connect(f"{setting.folder}/people.db")) as people:
        users = people.execute(f"SELECT {USER_COUNT}").fetchone()[0] if setting.guarded else 0
    return rows, users


def _read_postgres(setting: StormSetting) -> tuple[list[tuple[str, str]], int]:
    import psycopg

    with psycopg.connect(setting.store, options=f"-c search_path={_schema(setting)}") as server:
        rows = server.execute(f"SELECT {AUDIT_COLUMNS} FROM {_table(setting)}".encode()).fetchall()
        users = server.execute(f"SELECT {USER_COUNT}".encode()).fetchone()
    return rows, users[0] if users else 0


def _table(setting: StormSetting) -> str:
    return STATEMENTS.name if setting.guarded else UNGUARDED_STATEMENTS.name


def _on_server(setting: StormSetting) -> bool:
    """Return whether statements go to PostgreSQL. With any other store they go into files."""
    return setting.store.startswith("postgres")


def _schema(setting: StormSetting) -> str:
    return f"storm_{setting.run}"


def _server(setting: StormSetting) -> str:
    return f"{setting.store}{'&' if '?' in setting.store else '?'}schema={_schema(setting)}"


def _make_schema(setting: StormSetting) -> None:
    import psycopg

    with psycopg.connect(setting.store) as server:
        server.execute(f"CREATE SCHEMA {_schema(setting)}".encode())

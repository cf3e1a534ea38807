"""The learning records in a storm: statements in any spelling and order, several times; workers that die or sleep.

On files, the workers speak HTTP to one server, as DuckDB belongs to one process; and that server is killed as well,
again and again, and started anew. On PostgreSQL every worker merges by itself.
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
from examples.learning.by_hand import BY_HAND, ByHand
from examples.learning.consumer import read
from examples.learning.endpoint import PATH, REPLAYED
from examples.learning.place import opened
from examples.learning.tables import STATEMENTS
from onceward.queues import Message
from onceward.testing.storm import Answer, Audit, Effect, Event, Setting
from onceward.testing.storm.contract import Said

WHO = "storm:secret"
CONTESTED = 6  # of so many statements, one comes in two versions: only one of them can be true
USERS = 12
LIFE = (1.0, 5.0)  # seconds of a server
A_MOMENT = 0.1
SAID: dict[str, Said] = {"inserted": "executed", "same": "replayed", "different": "rejected"}
STATUSES: dict[int, Said] = {204: "executed", 409: "rejected"}
SAYS = "statement_id, CAST(statement AS JSON)->'result'->>'response'"
ALIVE = "count(*) FROM onceward_people WHERE merged_into IS NULL"
ZONES = ("Z", "+00:00", ".000Z", ".0+00:00")


class Learning:
    """One row a statement, and one user a person, whatever happens."""

    name = "learning"
    effects = (
        Effect("row in statements", "once: merged under its id, and the same row changes nothing"),
        Effect("user record", "once: found by its identifiers before it is made"),
        Effect("of two statements under one id", "one stored, the other refused"),
    )

    def __init__(self) -> None:
        self._server: Server | None = None

    @contextmanager
    def open(self, setting: Setting) -> Iterator[dict[str, str]]:
        self._server = None
        if _on_server(setting):
            _make_schema(setting)
            with opened(Path(setting.folder), _server(setting)):  # makes the tables
                yield {}
            return
        self._server = Server(setting)
        try:
            yield {"lrs": self._server.start()}
        finally:
            self._server.stop()

    def events(self, dice: random.Random) -> Iterator[Event]:
        number = 0
        while True:
            number += 1
            statement = _statement(number, dice)
            if number % CONTESTED:
                yield Event(f"{number}", statement)
            else:
                for version in ("a", "b"):
                    yield Event(f"{number}{version}", {**statement, "result": {"response": f"{number}{version}"}})

    def worker(self, setting: Setting) -> Callable[[Event], Answer]:
        dice = random.Random()
        handle = _directly(setting) if _on_server(setting) else _over_http(setting)
        return lambda event: handle(_respelt(event.body, dice), event.id)

    def audit(self, setting: Setting, events: Sequence[Event]) -> Audit:
        """Counted with the databases' own drivers."""
        if self._server is not None:
            self._server.stop()
        rows, users = (_in_postgres if _on_server(setting) else _in_files)(setting)
        meant: dict[str, set[str]] = {}
        for event in events:
            meant.setdefault(event.body["id"], set()).add(event.body["result"]["response"])
        wrong = [f"{id}: {said!r} was never said" for id, said in rows if said not in meant.get(id, ())]
        people = len({_person(event.body["actor"]) for event in events})
        if setting.guarded and users != people:
            wrong.append(f"{users} users instead of {people}")
        counted = {} if self._server is None else {"kills of the server": self._server.kills}
        return Audit.of([Event(id) for id in meant], [id for id, _ in rows], wrong=wrong, counted=counted)


SYSTEM = Learning()


# ── what happens in the world ──


def _statement(number: int, dice: random.Random) -> dict[str, Any]:
    who = dice.randrange(USERS)
    account = {"homePage": "https://lms.example.com", "name": f"{who}"}
    actor = {"mbox": f"mailto:user{who}@example.com"} if who % 3 else {"account": account}
    return {
        "id": str(UUID(int=dice.getrandbits(128), version=4)),
        "actor": actor,
        "verb": {"id": "http://adlnet.gov/expapi/verbs/answered"},
        "object": {"id": f"https://example.com/questions/{dice.randrange(50)}"},
        "result": {"response": f"{number}"},
        "timestamp": f"2026-03-01T{number // 3600 % 24:02}:{number // 60 % 60:02}:{number % 60:02}Z",
    }


def _respelt(told: dict[str, Any], dice: random.Random) -> dict[str, Any]:
    """As another sender would write it."""
    shown = {"display": {"en": dice.choice(("answered", "has answered"))}} if dice.random() < 0.5 else {}
    return {
        **told,
        "verb": {**told["verb"], **shown},
        "timestamp": told["timestamp"].replace("Z", dice.choice(ZONES)),
    }


def _person(actor: dict[str, Any]) -> str:
    return json.dumps(actor, sort_keys=True)


# ── the workers ──


def _directly(setting: Setting) -> Callable[[dict[str, Any], str], Answer]:
    kind = records.Learning if setting.guarded else ByHand
    place = contextlib.ExitStack().enter_context(opened(Path(setting.folder), _server(setting), kind))

    def handle(statement: dict[str, Any], name: str) -> Answer:
        told = read(Message(json.dumps(statement).encode(), name))
        [verdict] = place.learning.store(told).verdicts
        return Answer(SAID[verdict])

    return handle


def _over_http(setting: Setting) -> Callable[[dict[str, Any], str], Answer]:
    address = setting.services["lrs"]
    headers = {
        "Authorization": f"Basic {b64encode(WHO.encode()).decode()}",
        "X-Experience-API-Version": "1.0.3",
        "Content-Type": "application/json",
    }

    def handle(statement: dict[str, Any], _name: str) -> Answer:
        server = HTTPConnection(address, timeout=20)
        try:
            server.request("PUT", f"{PATH}?statementId={statement['id']}", json.dumps(statement), headers)
            answer = server.getresponse()
            said = answer.read()
        except (OSError, HTTPException) as error:  # it was killed just now, and will be back
            time.sleep(A_MOMENT)
            return Answer("failed", why=repr(error))
        finally:
            server.close()
        if answer.status in STATUSES:
            return Answer("replayed" if answer.getheader(REPLAYED[0]) else STATUSES[answer.status])
        return Answer("failed", why=f"{answer.status}: {said[:200]!r}")

    return handle


class Server:
    """The process that has the files. Killed at random; whatever it had answered must be there afterwards."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._over = threading.Event()
        self._process: subprocess.Popen[str] | None = None
        self._weather = threading.Thread(target=self._kill_now_and_then, daemon=True)
        self._port = 0
        self.kills = 0

    def start(self) -> str:
        address = self._begin()
        self._port = int(address.rpartition(":")[2])
        self._weather.start()
        return address

    def stop(self) -> None:
        """By a kill as well: what was answered last must be there, too."""
        self._over.set()
        if self._weather.ident is not None:
            self._weather.join()
        self._end()

    def _begin(self) -> str:
        command = [sys.executable, "-m", "examples.learning", "serve", "--folder", self._setting.folder]
        command += [
            "--leashed",
            "--user",
            WHO,
            "--port",
            str(self._port),
            *([] if self._setting.guarded else ["--unguarded"]),
        ]
        found = os.pathsep.join(filter(None, sys.path))  # what we can import, it can
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": found}
        )
        assert self._process.stdout is not None
        address = self._process.stdout.readline().strip()
        if not address:
            raise RuntimeError("the server did not start")
        return urlsplit(address).netloc

    def _kill_now_and_then(self) -> None:
        dice = random.Random()
        while not self._over.wait(dice.uniform(*LIFE)):
            self._end()
            self._begin()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            self.kills += 1
            for pipe in filter(None, (process.stdin, process.stdout)):
                pipe.close()


# ── the audit ──


def _in_files(setting: Setting) -> tuple[list[tuple[str, str]], int]:
    import duckdb

    with duckdb.connect(f"{setting.folder}/house.duckdb") as house:
        rows = house.execute(f"SELECT {SAYS} FROM {_table(setting)}").fetchall()
    with closing(sqlite3.connect(f"{setting.folder}/people.db")) as people:
        users = people.execute(f"SELECT {ALIVE}").fetchone()[0] if setting.guarded else 0
    return rows, users


def _in_postgres(setting: Setting) -> tuple[list[tuple[str, str]], int]:
    import psycopg

    with psycopg.connect(setting.store, options=f"-c search_path={_schema(setting)}") as server:
        rows = server.execute(f"SELECT {SAYS} FROM {_table(setting)}".encode()).fetchall()
        users = server.execute(f"SELECT {ALIVE}".encode()).fetchone()
    return rows, users[0] if users else 0


def _table(setting: Setting) -> str:
    return STATEMENTS.name if setting.guarded else BY_HAND.name


def _on_server(setting: Setting) -> bool:
    """Whatever else the store is, it is none for statements: then they go into files."""
    return setting.store.startswith("postgres")


def _schema(setting: Setting) -> str:
    return f"storm_{setting.run}"


def _server(setting: Setting) -> str:
    return f"{setting.store}{'&' if '?' in setting.store else '?'}schema={_schema(setting)}"


def _make_schema(setting: Setting) -> None:
    import psycopg

    with psycopg.connect(setting.store) as server:
        server.execute(f"CREATE SCHEMA {_schema(setting)}".encode())

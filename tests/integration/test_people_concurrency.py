"""Several concurrent importers never create one person twice."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onceward.people import Decision, People
from onceward.people.on_postgres import PostgresTables
from tests.integration.people_importer import SIZE
from tests.people_backends import BOTH, PROSPECTS, people_url, record
from tests.servers.postgres import execute

PATIENCE = 60.0  # seconds to wait for a condition
IMPORTERS = 3
ANNA = {"name": "Anna Schmidt", "city": "Berlin", "country": "DE"}


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "the condition never became true"
        time.sleep(0.01)


@pytest.mark.mission("C5", "D2")
@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("batch_size", [1, 25])
def test_processes_that_import_the_same_people_create_each_once(
    kind: str, batch_size: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = people_url(kind, tmp_path, request)
    People(url, rules=PROSPECTS).close()
    command = [sys.executable, "-m", "tests.integration.people_importer", url]
    names = [f"importer{n}" for n in range(IMPORTERS)]
    pool = [
        subprocess.Popen([*command, name, str(seed), str(batch_size), str(tmp_path)], stderr=subprocess.PIPE)
        for seed, name in enumerate(names)
    ]
    try:
        until(lambda: all((tmp_path / f"{name} is ready").exists() for name in names))
        (tmp_path / "go").touch()
        for process in pool:
            _, errors = process.communicate(timeout=PATIENCE)
            assert process.returncode == 0, errors.decode()
    finally:
        for process in pool:
            process.kill()
            process.communicate()
    with People(url, rules=PROSPECTS) as people:
        everybody = list(people)
    assert len(everybody) == SIZE
    assert {person.sources for person in everybody if set(person.sources) != set(names)} == set()
    assert {len(person.contributions) for person in everybody} == {2 * IMPORTERS}


def test_threads_that_open_a_new_file_concurrently_all_succeed(tmp_path: Path) -> None:
    """SQLite does not wait for a lock while a new file is switched to WAL mode."""
    for round_ in range(40):
        url = f"sqlite:///{tmp_path}/people{round_}.db"
        start = threading.Barrier(4)
        results: list[object] = []

        def opens(url: str = url, start: threading.Barrier = start, results: list[object] = results) -> None:
            try:
                with People(url, rules=PROSPECTS) as people:
                    start.wait(PATIENCE)
                    results.append(people.add(record("csv", email="a@example.com")).action)
            except Exception as error:
                results.append(error)

        pool = [threading.Thread(target=opens) for _ in range(4)]
        for thread in pool:
            thread.start()
        for thread in pool:
            thread.join(PATIENCE)
        assert sorted(map(str, results)) == ["created", *["skipped"] * 3]


class Second(threading.Thread):
    """Another importer that adds one record."""

    def __init__(self, url: str, **fields: Any) -> None:
        super().__init__(daemon=True)
        self._people = People(url, rules=PROSPECTS)
        self._fields = fields
        self.decision: Decision | None = None

    def run(self) -> None:
        with self._people:
            self.decision = self._people.add(record("second", "1", **self._fields))


def waits_for_a_claim() -> bool:
    return bool(execute("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"))


@pytest.mark.parametrize("fields", [ANNA, {"email": "anna@example.com"}], ids=["similarity", "address"])
def test_the_second_importer_waits_for_the_first_and_finds_its_person(
    tmp_path: Path, request: pytest.FixtureRequest, fields: dict[str, str]
) -> None:
    url = people_url("postgres", tmp_path, request)
    with People(url, rules=PROSPECTS) as people:
        people.add(record("warm", "1", email="warm@example.com"))
        with people.transaction() as tx:
            [first] = tx.add_many([record("first", "1", **fields)])
            second = Second(url, **fields)
            second.start()
            until(waits_for_a_claim)
        second.join(PATIENCE)
        assert second.decision is not None
        assert (first.action, second.decision.action) == ("created", "updated")
        assert second.decision.person == first.person


def test_without_claims_the_same_person_would_be_created_twice(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Show that the test above would detect the error."""
    url = people_url("postgres", tmp_path, request)
    monkeypatch.setattr(PostgresTables, "lock_keys", lambda *_: None)
    with People(url, rules=PROSPECTS) as people:
        people.add(record("warm", "1", email="warm@example.com"))
        with people.transaction() as tx:
            tx.add_many([record("first", "1", **ANNA)])
            second = Second(url, **ANNA)
            second.start()
            second.join(PATIENCE)
        assert second.decision is not None
        assert second.decision.action == "created"


def test_a_record_for_a_person_being_merged_goes_to_the_remaining_person(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = people_url("postgres", tmp_path, request)
    with People(url, rules=PROSPECTS) as people:
        web = people.add(record("web", "1", email="a@example.com")).person
        people.add(record("shop", "1", external_id="C-1", email="bert@example.com"))
        with people.transaction() as tx:
            tx.add_many([record("crm", "1", email="a@example.com", external_id="C-1")])
            second = Second(url, email="bert@example.com", Room="7")
            second.start()
            until(lambda: bool(execute("SELECT 1 FROM pg_locks WHERE locktype <> 'advisory' AND NOT granted")))
        second.join(PATIENCE)
        assert second.decision is not None
        assert second.decision.person == web
        [person] = people
    assert person.sources == ("web", "shop", "crm", "second")
    assert person.fields["Room"] == "7"


@pytest.mark.parametrize("kind", BOTH)
def test_threads_may_share_one_people_object(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    with People(people_url(kind, tmp_path, request), rules=PROSPECTS) as people:
        people.add(record("warm", "0", email="0@example.com"))
        pool = [
            threading.Thread(
                target=lambda n=n: [people.add(record(f"s{n}", str(x), email=f"{x}@example.com")) for x in range(10)]
            )
            for n in range(4)
        ]
        for thread in pool:
            thread.start()
        for thread in pool:
            thread.join(PATIENCE)
        assert len(people) == 10


@pytest.mark.parametrize("kind", BOTH)
def test_a_child_after_a_fork_opens_a_connection_of_its_own(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """What the child has committed stays, although the parent closes the connection it opened before the fork."""
    with People(people_url(kind, tmp_path, request), rules=PROSPECTS) as people:
        people.add(record("parent", "1", email="a@example.com"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python warns about forking a process that has threads
            child = os.fork()
        if child == 0:
            try:
                people.add(record("child", "1", email="b@example.com"))
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        people.add(record("parent", "2", email="c@example.com"))
        assert len(people) == 3

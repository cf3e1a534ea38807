"""The same on PostgreSQL, where importers really run concurrently."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from onceward import AlreadyRunning, StoreUnavailable
from onceward.imports import Counts, Progress, import_file
from onceward.people import People
from tests.imports.files import person, rejected, users, write
from tests.servers.postgres import Postgres


@pytest.fixture
def url(postgres: Postgres) -> Iterator[str]:
    """The URL of a new schema without tables."""
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS imports CASCADE")
        yield f"{postgres.url}?schema=imports&migrate=1"
        connection.execute("DROP SCHEMA IF EXISTS imports CASCADE")


@pytest.mark.mission("D2", "D3")
def test_import_edit_and_import_again(url: str, tmp_path: Path) -> None:
    file = write(tmp_path / "users.csv", [*users(20), ("bad", "", "")])
    with People(url) as people:
        assert import_file(file, people, dry_run=True, batch=6).counts == Counts(created=20, rejected=1)
        assert len(people) == 0
        first = import_file(file, people, batch=6)
        assert first.counts == Counts(created=20, rejected=1)
        assert import_file(file, people).replayed
        edited = write(file, [("u0@example.com", "New Name", "New"), *users(20)[1:], ("bad", "", "")])
        assert import_file(edited, people, dry_run=True).counts == Counts(updated=1, skipped=19, rejected=1)
        assert import_file(edited, people).counts == Counts(updated=1, skipped=19, rejected=1)
        assert person(people, "u0@example.com").of("csv")[0]["Team"] == "New"
        assert len(people) == 20


@pytest.mark.fault("F31")
def test_an_interrupted_import_resumes_where_it_stopped(url: str, tmp_path: Path) -> None:
    file = write(tmp_path / "users.csv", [*users(7), ("bad", "", ""), *users(7, begin=7)])

    def crash(progress: Progress) -> None:
        if progress.rows == 8:
            raise KeyboardInterrupt

    with People(url) as people:
        with pytest.raises(KeyboardInterrupt):
            import_file(file, people, batch=4, on_progress=crash)
        done = import_file(file, people, batch=4)
        assert (done.resumed_at, done.counts) == (8, Counts(created=14, rejected=1))
        assert done.rejects is not None
        assert len(rejected(Path(done.rejects))) == 1


@pytest.mark.mission("D2", "C5")
def test_concurrent_importers_create_no_person_twice(url: str, tmp_path: Path) -> None:
    """Three files with the same people in another order, and one of them twice."""
    rows = users(60)
    files = [
        write(tmp_path / "a.csv", rows),
        write(tmp_path / "b.csv", rows[::-1]),
        write(tmp_path / "c.csv", rows[30:] + rows[:30]),
    ]
    People(url).close()
    People(url).add_many([])  # creates the tables
    answers: list[object] = []
    line = threading.Barrier(4)

    def work(file: Path) -> None:
        with People(url) as people:
            line.wait(60)
            try:
                answers.append(import_file(file, people, batch=10).counts.rows)
            except BaseException as error:
                answers.append(error)

    pool = [threading.Thread(target=work, args=(file,)) for file in (*files, files[0])]
    for one in pool:
        one.start()
    for one in pool:
        one.join()
    stopped = [answer for answer in answers if not isinstance(answer, int)]
    assert [type(answer) for answer in stopped] in ([], [AlreadyRunning]), answers
    with People(url) as people:
        assert import_file(files[0], people).replayed, "the first of the two imported it"
        assert len(people) == 60
        assert all(len(one.of("csv")) == 3 for one in people)


def test_concurrent_dry_runs_wait_for_each_other_without_deadlock(url: str, postgres: Postgres, tmp_path: Path) -> None:
    rows = users(2)
    files = [write(tmp_path / "a.csv", rows), write(tmp_path / "b.csv", rows[::-1])]
    import_file(write(tmp_path / "c.csv", users(1, begin=9)), url)  # creates the tables
    results: dict[str, object] = {}
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"

    def until_the_other_is_there(progress: Progress) -> None:
        results[progress.name] = "has begun"
        with psycopg.connect(postgres.url, autocommit=True) as connection:
            while len(results) < 2 and connection.execute(waiting).fetchone() == (0,):
                pass

    def work(file: Path) -> None:
        try:
            answer: object = import_file(file, url, dry_run=True, batch=1, on_progress=until_the_other_is_there).counts
        except BaseException as error:
            answer = error
        results[file.name] = answer

    pool = [threading.Thread(target=work, args=(file,)) for file in files]
    for one in pool:
        one.start()
    for one in pool:
        one.join()
    assert results == {file.name: Counts(created=2) for file in files}


@pytest.mark.fault("F51", "F54")
def test_a_server_that_dies_on_the_way_stops_the_import_which_then_resumes(
    own_postgres: Postgres, tmp_path: Path
) -> None:
    file = write(tmp_path / "users.csv", [*users(5), ("bad", "", ""), *users(5, begin=5), ("bad too", "", "")])

    def strike(progress: Progress) -> None:
        if progress.rows == 8:
            own_postgres.kill()

    with People(f"{own_postgres.url}?migrate=1") as people:
        with pytest.raises(StoreUnavailable):
            import_file(file, people, batch=4, on_progress=strike)
        own_postgres.start()
        done = import_file(file, people, batch=4)
        assert (done.resumed_at, done.counts) == (8, Counts(created=10, rejected=2))
        assert done.rejects is not None
        assert [row[0] for row in rejected(Path(done.rejects))] == ["7", "13"]

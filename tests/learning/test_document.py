"""The learning-records document: its three test cases by name, its flow and its error rules, end to end."""

from __future__ import annotations

import asyncio
import hashlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from examples.learning.consumer import consumer
from examples.learning.records import Learning
from examples.learning.storage import Storage, open_storage
from examples.learning.tables import ENRICHED, LEARNERS
from onceward import Once, StoreUnavailable
from onceward.errors import SourceError
from onceward.people import Person, SourceRecord
from onceward.queues import MemoryQueue
from onceward.stores import MemoryStore
from onceward.testing.queues.base import parked_records, wait_until
from tests.learning.backends import server_of
from tests.learning.samples import JOHN, VERBS, statement, uuid

ROOT = Path(__file__).resolve().parents[2]
CSV = "Email,Team\njohn@example.com,UVM"


@pytest.fixture(params=["duckdb", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    with open_storage(tmp_path, server_of(request)) as place:
        yield place


@pytest.fixture
def learning(place: Storage) -> Learning:
    return place.learning


class Bus:
    """Publishes statements and consumes them."""

    def __init__(self, learning: Learning, *, lenient: bool = False) -> None:
        self.lenient = lenient
        self.queue = MemoryQueue("statements")
        self.once = Once(MemoryStore())
        self._learning = learning

    def publish(self, *statements: Any) -> None:
        """Publish each as a message; return when all of them are settled."""
        for one in statements:
            self.queue.put(json.dumps(one).encode())
        asyncio.run(self.consumed())

    async def consumed(self, rounds: int | None = None) -> None:
        """Consume everything, or until each message was delivered `rounds` times."""
        app = consumer(self._learning, self.queue, self.once, lenient=self.lenient)
        app.poll_timeout = 0.02
        task = asyncio.create_task(app.consume())
        await wait_until(
            lambda: len(self.queue) == 0 if rounds is None else self.once.counts.get("delivered_later", 0) >= rounds
        )
        app.stop()
        await task


@pytest.fixture
def bus(learning: Learning) -> Bus:
    return Bus(learning)


def rows(learning: Learning, sql: str) -> list[tuple[Any, ...]]:
    return learning.house.query(sql)


def count(learning: Learning) -> int:
    number: int = rows(learning, "SELECT count(*) FROM statements")[0][0]
    return number


def import_csv(learning: Learning, folder: Path, content: str, name: str = "users.csv") -> Any:
    file = folder / name
    file.write_text(content, encoding="utf-8")
    return learning.import_users(file)


def user(learning: Learning, email: str = "john@example.com") -> Person:
    found = learning.people.find(email=email)
    assert found is not None
    return found


# ── the three test cases ──


@pytest.mark.mission("D1")
def test_case_1_duplicate_statement(learning: Learning, bus: Bus) -> None:
    """The document calls it test-123; an id of a statement is a UUID."""
    bus.publish(statement("test-123"))
    bus.publish(statement("test-123"))
    assert count(learning) == 1
    assert len(bus.queue) == 0, "both are acknowledged"
    assert bus.once.counts == {}, "and nothing was parked"


@pytest.mark.mission("D2")
def test_case_2_same_user_from_multiple_sources(learning: Learning, bus: Bus, tmp_path: Path) -> None:
    bus.publish(statement())
    import_csv(learning, tmp_path, CSV)
    assert len(learning.people) == 1
    assert user(learning).sources == ("xapi", "csv")
    assert user(learning).of("csv") == [{"email": "john@example.com", "Team": "UVM"}]


@pytest.mark.mission("D3")
def test_case_3_csv_imported_twice(learning: Learning, tmp_path: Path) -> None:
    import_csv(learning, tmp_path, CSV)
    before = user(learning)
    assert import_csv(learning, tmp_path, CSV).replayed
    assert user(learning) == before
    assert len(learning.people) == 1
    import_csv(learning, tmp_path, CSV.replace("UVM", "Formal"))
    assert user(learning).of("csv") == [{"email": "john@example.com", "Team": "Formal"}], "updated, not added again"


# ── the same, as the document writes them ──


@pytest.fixture
def lenient(learning: Learning) -> Bus:
    return Bus(learning, lenient=True)


@pytest.mark.mission("D1")
def test_case_1_as_written(learning: Learning, lenient: Bus, caplog: pytest.LogCaptureFixture) -> None:
    sent = {"id": "test-123", "actor": JOHN, "verb": {"id": f"{VERBS}completed"}, "object": {"id": "https://e.com/c"}}
    with caplog.at_level("INFO", "examples.learning"):
        lenient.publish(sent)
        lenient.publish(sent)
    assert rows(learning, "SELECT statement_id FROM statements") == [("test-123",)]
    assert "Statement test-123 already exists, skipping duplicate" in caplog.messages
    assert learning.get("test-123") is not None
    lenient.publish({**sent, "result": {"success": True}})
    assert count(learning) == 1
    assert lenient.once.counts["parked"] == 1, "other content under a known id"


@pytest.mark.mission("D2")
def test_case_2_as_written(learning: Learning, lenient: Bus, tmp_path: Path) -> None:
    lenient.publish({"actor": {"mbox": "mailto:john@example.com"}})
    import_csv(learning, tmp_path, "Email,Team\njohn@example.com,UVM")
    learning.publish_users("after the import")
    assert published(learning) == [
        ("john@example.com", ["xapi", "csv"], [{"email": "john@example.com", "Team": "UVM"}])
    ]


@pytest.mark.mission("D3")
def test_case_3_as_written(learning: Learning, tmp_path: Path) -> None:
    csv_content = "Email,Team\njohn@example.com,UVM"
    for _ in range(2):
        import_csv(learning, tmp_path, csv_content)
        learning.publish_users(f"{uuid4()}")
    assert published(learning) == [("john@example.com", ["csv"], [{"email": "john@example.com", "Team": "UVM"}])]


def test_lenient_is_not_careless(learning: Learning, lenient: Bus) -> None:
    """What the tables cannot hold is parked, and stops no other statement."""
    bad: list[Any] = [
        {"actor": "John"},
        {"actor": {"name": "John"}},
        {"id": 7, "actor": JOHN},
        {"id": "", "actor": {}},
        {"actor": JOHN, "verb": "completed"},
        {"actor": JOHN, "object": {"id": 7}},
        {"actor": JOHN, "timestamp": "yesterday"},
        {"actor": JOHN, "timestamp": 7},
        {"actor": JOHN, "context": {"registration": 7}},
        {"actor": JOHN, "result": {"response": "a\0b"}},
        {"id": "x" * 501, "actor": JOHN},
        7,
    ]
    lenient.publish(*bad, {"actor": JOHN}, statement("s1"))
    assert lenient.once.counts["parked"] == len(bad)
    assert count(learning) == 2


# ── statements ──


@pytest.mark.mission("D1")
def test_another_statement_under_a_known_id_is_parked_and_the_first_stays(learning: Learning, bus: Bus) -> None:
    bus.publish(statement("s1"), statement("s2"))
    bus.publish(statement("s1", result={"success": True}), statement("s3"))
    assert count(learning) == 3
    assert (learning.get(uuid("s1")) or {}).get("result") is None
    assert [kind for _, kind in asyncio.run(parked_in(bus))] == ["PayloadMismatch"]
    assert len(bus.queue) == 0


async def parked_in(bus: Bus) -> list[tuple[str, str]]:
    return await parked_records(bus.once.store)


@pytest.mark.mission("D1")
def test_of_two_different_statements_in_one_batch_the_first_is_stored(learning: Learning, bus: Bus) -> None:
    versions = [statement("s1", result={"response": str(n)}) for n in (1, 2, 1, 3)]
    bus.publish(*versions)
    assert count(learning) == 1
    assert (learning.get(uuid("s1")) or {})["result"] == {"response": "1"}
    assert bus.once.counts["parked"] == 2, "the third is the first again"


def test_a_message_with_several_statements_goes_in_whole_or_not_at_all(learning: Learning, bus: Bus) -> None:
    bus.publish([statement("s1"), statement("s2")])
    bus.publish([statement("s3"), statement("s2", result={"success": True}), statement("s4")])
    assert count(learning) == 2
    assert bus.once.counts["parked"] == 1


def test_an_invalid_statement_is_parked_and_does_not_stop_others(learning: Learning, bus: Bus) -> None:
    bus.queue.put(b"no JSON")
    bus.publish(statement("s1"), {"id": "test-123"}, statement("s2", result={"response": "a\0b"}), statement("s3"))
    assert count(learning) == 2
    assert bus.once.counts["parked"] == 3


def test_what_the_warehouse_refuses_is_parked_and_keeps_no_other_out(
    learning: Learning, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    merge = learning.house.merge

    def particular(table: Any, rows: Any, **choices: Any) -> Any:
        merged = list(rows)
        if any(row["statement_id"] == uuid("s2") for row in merged):
            raise SourceError("statements refuses a row of this load")
        return merge(table, merged, **choices)

    monkeypatch.setattr(learning.house, "merge", particular)
    bus.publish(statement("s1"), statement("s2"), [statement("s3"), statement("s4")])
    assert count(learning) == 3
    assert [kind for _, kind in asyncio.run(parked_in(bus))] == ["SourceError"]


def test_a_statement_without_an_id_is_named_after_its_message(learning: Learning, bus: Bus) -> None:
    nameless = json.dumps({name: value for name, value in statement().items() if name != "id"}).encode()
    for _ in range(2):
        bus.queue.put(nameless, id="m1")
        asyncio.run(bus.consumed())
    assert count(learning) == 1


@pytest.mark.mission("D1", "D2")
def test_a_statement_under_a_known_id_changes_nothing_at_all_whatever_it_says_about_its_user(
    learning: Learning, bus: Bus
) -> None:
    bus.publish(statement("s1"))
    before = list(learning.people)
    renamed, stranger = {**JOHN, "name": "Somebody else"}, {"mbox": "mailto:stranger@example.com"}
    bus.publish(statement("s1", renamed), statement("s1", stranger))
    bus.publish([statement("s2", stranger), statement("s1", renamed)])
    assert bus.once.counts["parked"] == 3
    assert list(learning.people) == before
    bus.publish([statement("s2", stranger), statement("s1")])
    assert len(learning.people) == 2, "a stored statement updates its user"


def test_several_without_an_id_in_one_message_have_a_name_each(learning: Learning, bus: Bus) -> None:
    nameless = [{**statement(actor={"mbox": f"mailto:u{n}@example.com"})} for n in range(2)]
    for one in nameless:
        del one["id"]
    for _ in range(2):
        bus.queue.put(json.dumps(nameless).encode(), id="m1")
        asyncio.run(bus.consumed())
    assert count(learning) == 2
    assert bus.once.counts == {}


# ── users ──


@pytest.mark.mission("D2")
def test_a_user_is_one_by_whichever_identifier_they_come(learning: Learning, bus: Bus, tmp_path: Path) -> None:
    sha1 = hashlib.sha1(b"mailto:john@example.com", usedforsecurity=False).hexdigest()
    written = hashlib.sha1(b"mailto:John@example.com", usedforsecurity=False).hexdigest()
    bus.publish(statement("by hash", actor={"mbox_sha1sum": sha1.upper()}))
    bus.publish(statement("by account", actor={"account": {"homePage": "https://lms.example.com", "name": "7"}}))
    bus.publish(statement("by openid", actor={"openid": "https://id.example.com/7"}))
    assert len(learning.people) == 3, "nothing says yet that they are one person"
    import_csv(
        learning,
        tmp_path,
        "Email,Team,account,openid\nJohn@Example.com,UVM,https://lms.example.com#7,https://id.example.com/7",
    )
    assert len(learning.people) == 1, "the file connects them"
    bus.publish(statement("by mbox", actor={"mbox": "mailto:John@Example.COM", "name": "John"}))
    bus.publish(statement("by the other hash", actor={"mbox_sha1sum": written}))
    assert len(learning.people) == 1
    assert user(learning).sources == ("xapi", "csv")
    learning.publish_users("users")
    assert {(one[1], json.loads(one[4])[0]["Team"]) for one in rows(learning, ENRICHED)} == {
        ("john@example.com", "UVM")
    }
    [(who, name, statements, first, last)] = rows(learning, LEARNERS)
    assert (who, name, statements) == ("john@example.com", "John", 5)
    assert first <= last


@pytest.mark.mission("D2", "D4")
def test_users_that_were_published_as_two_and_turn_out_to_be_one_are_one_in_the_warehouse(
    learning: Learning, bus: Bus, tmp_path: Path
) -> None:
    account = {"homePage": "https://lms.example.com", "name": "7"}
    bus.publish(statement("by account", {"account": account}), statement("by mbox"))
    learning.publish_users("before")
    assert len(rows(learning, LEARNERS)) == 2
    import_csv(learning, tmp_path, "Email,account\njohn@example.com,https://lms.example.com#7")
    learning.publish_users("after")
    assert [(who, number) for who, _, number, *_ in rows(learning, LEARNERS)] == [("john@example.com", 2)]
    merged = "SELECT user_id, merged_into, sources FROM users WHERE merged_into IS NOT NULL"
    assert rows(learning, merged) == [("account:https://lms.example.com#7", "john@example.com", None)]
    assert learning.publish_users("again") == 0


def published(learning: Learning) -> list[tuple[Any, ...]]:
    """Return the users in the warehouse: id, sources and CSV data."""
    found = rows(learning, "SELECT user_id, sources, csv_data FROM users WHERE merged_into IS NULL ORDER BY user_id")
    return [(id, *(json.loads(one) if isinstance(one, str) else one for one in others)) for id, *others in found]


@pytest.mark.finding("N47", "N58")
@pytest.mark.mission("D2", "D4")
def test_users_are_in_the_warehouse_as_their_statements_arrive(learning: Learning, bus: Bus, tmp_path: Path) -> None:
    mary = {"mbox": "mailto:mary@example.com"}
    bus.publish(statement("s1"), statement("s2", {"objectType": "Group", "member": [mary]}))
    assert published(learning) == [("john@example.com", ["xapi"], []), ("mary@example.com", ["xapi"], [])]
    import_csv(learning, tmp_path, CSV)
    bus.publish(statement("s3"))
    assert published(learning)[0] == (
        "john@example.com",
        ["xapi", "csv"],
        [{"email": "john@example.com", "Team": "UVM"}],
    )
    assert rows(learning, "SELECT user_id FROM user_keys WHERE key = 'email:john@example.com'") == [
        ("john@example.com",)
    ]
    before = rows(learning, "SELECT count(*) FROM onceward_loads")
    bus.publish(statement("s4"), statement("s5", mary), statement("s1"))
    assert rows(learning, "SELECT count(*) FROM onceward_loads") == before, "unchanged users are not written again"


@pytest.mark.finding("N47")
def test_a_user_is_published_before_their_statement_so_a_crash_in_between_is_repaired(
    learning: Learning, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learning.house, "load", failing)
    bus.queue.put(json.dumps(statement("s1")).encode())
    asyncio.run(bus.consumed(rounds=1))
    assert (count(learning), len(learning.people)) == (0, 1), "the user is recorded, and nothing is acknowledged"
    monkeypatch.undo()
    asyncio.run(bus.consumed())
    assert published(learning) == [("john@example.com", ["xapi"], [])]
    assert count(learning) == 1


@pytest.mark.finding("N47")
def test_an_older_version_that_another_process_publishes_late_is_corrected(learning: Learning, bus: Bus) -> None:
    """The other process adds a name while this one is writing the row without it."""
    load = learning.house.load
    renamed: list[None] = []

    def slow(*args: Any, **choices: Any) -> Any:
        if not renamed:
            renamed.append(None)
            said = {"email": "john@example.com", "name": "John Doe"}
            learning.people.add(SourceRecord("xapi", said, id="elsewhere"))
        return load(*args, **choices)

    learning.house.load = slow  # type: ignore[method-assign]
    bus.publish(statement("s1"))
    assert rows(learning, "SELECT name FROM users") == [("John Doe",)]


@pytest.mark.finding("N47")
def test_users_that_a_statement_connects_are_one_in_the_warehouse(learning: Learning, bus: Bus) -> None:
    written = hashlib.sha1(b"mailto:John@example.com", usedforsecurity=False).hexdigest()
    bus.publish(statement("by hash", {"mbox_sha1sum": written}))
    bus.publish(statement("by mbox", {"mbox": "mailto:John@example.com"}))
    assert published(learning) == [("john@example.com", ["xapi"], [])]
    merged = "SELECT user_id, merged_into FROM users WHERE merged_into IS NOT NULL"
    assert rows(learning, merged) == [(f"mbox_sha1sum:{written}", "john@example.com")]


@pytest.mark.finding("N48")
@pytest.mark.mission("D3")
def test_a_copy_of_a_file_adds_no_row_to_its_users(learning: Learning, tmp_path: Path) -> None:
    lines = ["john@example.com,UVM", "john@example.com,Formal", "anna@example.com,X"]
    import_csv(learning, tmp_path, "\n".join(["Email,Team", *lines]))
    learning.publish_users("first")
    before = published(learning)
    assert [len(data) for _, _, data in before] == [1, 2]
    import_csv(learning, tmp_path, "\n".join(["Email,Team", *lines[::-1]]), "reordered.csv")
    (tmp_path / "windows.csv").write_bytes("\r\n".join(["\ufeffEmail,Team", lines[1], lines[0], lines[2]]).encode())
    learning.import_users(tmp_path / "windows.csv")
    learning.publish_users("second")
    assert published(learning) == before


@pytest.mark.finding("N48")
def test_the_command_says_that_a_file_was_imported_before(tmp_path: Path) -> None:
    (tmp_path / "users.csv").write_text(CSV)
    command = [sys.executable, "-m", "examples.learning", "import", str(tmp_path / "users.csv"), "--folder"]
    said = [
        subprocess.run([*command, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    assert "imported before" not in said[0]
    assert "was imported before, so nothing was done" in said[1]


@pytest.mark.finding("N49")
@pytest.mark.mission("D2")
def test_a_statement_without_a_name_does_not_erase_the_name(learning: Learning, bus: Bus) -> None:
    bus.publish(statement("s1", {**JOHN, "name": "John"}))
    bus.publish(statement("s2", {"mbox": "mailto:John@example.com"}))
    bus.publish(statement("s3"))
    learning.users.forget()
    bus.publish(statement("s4", {"mbox": "mailto:JOHN@example.com"}))
    assert user(learning).fields["name"] == "John"
    assert rows(learning, "SELECT name FROM users") == [("John",)]


@pytest.mark.finding("N49")
@pytest.mark.mission("D2")
@pytest.mark.parametrize("file_first", [True, False])
def test_an_address_in_a_file_matches_its_hash_as_it_is_written(
    learning: Learning, bus: Bus, tmp_path: Path, *, file_first: bool
) -> None:
    written = hashlib.sha1(b"mailto:Carl@example.com", usedforsecurity=False).hexdigest()
    steps: list[Callable[[], Any]] = [
        lambda: import_csv(learning, tmp_path, "Email,Team\nCarl@Example.com,UVM"),
        lambda: bus.publish(statement("s1", {"mbox_sha1sum": written})),
    ]
    for step in steps if file_first else steps[::-1]:
        step()
    assert len(learning.people) == 1
    assert set(user(learning, "carl@example.com").sources) == {"xapi", "csv"}


@pytest.mark.mission("D2")
def test_accounts_of_two_pages_are_two_users_also_if_they_read_alike_when_put_together(
    learning: Learning, bus: Bus
) -> None:
    parts = [("https://e.com/#a", "b"), ("https://e.com/", "a#b"), ("https://e.com/%23a", "b")]
    bus.publish(
        *(statement(f"s{n}", {"account": {"homePage": one, "name": two}}) for n, (one, two) in enumerate(parts))
    )
    assert len(learning.people) == 3


@pytest.mark.mission("D2")
def test_two_people_of_one_name_are_two_and_the_members_of_a_group_are_users(learning: Learning, bus: Bus) -> None:
    anna, other = ({"mbox": f"mailto:anna{n}@example.com", "name": "Anna Schmidt"} for n in (1, 2))
    bus.publish(statement("s1", actor={"objectType": "Group", "member": [anna, other]}))
    assert sorted(str(one.fields["email"]) for one in learning.people) == ["anna1@example.com", "anna2@example.com"]
    assert rows(learning, "SELECT actor, user_id FROM statements") == [(None, None)], "a group is not a user"


@pytest.mark.mission("D3")
def test_a_new_csv_merges_in_and_several_rows_of_one_user_are_one_record(learning: Learning, tmp_path: Path) -> None:
    import_csv(learning, tmp_path, "Email,Team\njohn@example.com,UVM\nJohn@example.com,Formal")
    import_csv(learning, tmp_path, "Email,Room\njohn@example.com,B7", "rooms.csv")
    assert len(learning.people) == 1
    assert [one.get("Team") or one.get("Room") for one in user(learning).of("csv")] == ["UVM", "Formal", "B7"]


@pytest.mark.mission("D4")
def test_csv_data_enriches_statements_that_come_later_and_those_that_came_before(
    learning: Learning, bus: Bus, tmp_path: Path
) -> None:
    bus.publish(statement("early"))
    import_csv(learning, tmp_path, CSV)
    bus.publish(statement("late", {"mbox": "mailto:John@Example.com"}))
    learning.publish_users("users")
    teams = dict(rows(learning, "SELECT statement_id, CAST(teams AS VARCHAR) FROM statements"))
    assert teams == {uuid("early"): None, uuid("late"): '["UVM"]'}
    assert all(json.loads(one[-1])[0]["Team"] == "UVM" for one in rows(learning, ENRICHED))


# ── the error rules ──


def failing(*_: Any, **__: Any) -> Any:
    raise StoreUnavailable("it is away")


@pytest.mark.mission("D5")
def test_after_a_failed_duplicate_check_the_merge_still_prevents_duplicates(
    learning: Learning, bus: Bus, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bus.publish(statement("s1"))
    monkeypatch.setattr(learning.house, "found", failing)
    bus.publish(statement("s1"), statement("s2"))
    assert count(learning) == 2
    assert "continuing without its values" in caplog.text


@pytest.mark.mission("D5")
def test_a_merge_that_fails_is_not_acknowledged_and_the_redelivery_is_stored_once(
    learning: Learning, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learning.house, "merge", failing)
    bus.queue.put(json.dumps(statement("s1")).encode())
    asyncio.run(bus.consumed(rounds=1))
    assert len(bus.queue) == 1, "it is still there"
    monkeypatch.undo()
    asyncio.run(bus.consumed())
    assert count(learning) == 1
    assert len(learning.people) == 1


@pytest.mark.mission("D5")
def test_a_user_look_up_that_fails_does_not_stop_the_statement(
    learning: Learning, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learning.users, "_find", failing)
    bus.publish(statement("s1"))
    assert rows(learning, "SELECT user_id, teams FROM statements") == [("email:john@example.com", None)]
    assert len(learning.people) == 1, "a new user, as the document says"


# ── in numbers ──


class Asked:
    """Counts the calls to a database."""

    def __init__(self, of: Any, *names: str) -> None:
        self.counts = dict.fromkeys(names, 0)
        for name in names:
            setattr(of, name, self._counted(name, getattr(of, name)))

    def _counted(self, name: str, call: Any) -> Any:
        def counted(*args: Any, **choices: Any) -> Any:
            self.counts[name] += 1
            return call(*args, **choices)

        return counted


@pytest.mark.mission("D6")
def test_a_thousand_statements_are_a_handful_of_questions(learning: Learning, bus: Bus) -> None:
    house = Asked(learning.house, "merge", "found", "load")
    people = Asked(learning.people, "find_many", "add_many")
    many = [statement(f"s{n}", {"mbox": f"mailto:u{n % 20}@example.com"}) for n in range(1_000)]
    bus.publish(*many)
    assert house.counts == {"merge": 1, "found": 2, "load": 2}, "users and their keys are one load each"
    assert people.counts == {"find_many": 3, "add_many": 1}
    bus.publish(*many)
    assert house.counts == {"merge": 1, "found": 3, "load": 2}, "all of them are known"
    bus.publish(*many)
    assert house.counts == {"merge": 1, "found": 3, "load": 2}, "and remembered"
    bus.publish(*(statement(f"t{n}", {"mbox": f"mailto:u{n % 20}@example.com"}) for n in range(1_000)))
    assert house.counts == {"merge": 2, "found": 4, "load": 2}
    assert people.counts == {"find_many": 3, "add_many": 1}, "the users are known, too"
    assert rows(learning, "SELECT count(*), count(DISTINCT user_id) FROM statements") == [(2_000, 20)]
    for n in range(3):
        bus.publish(statement(f"named {n}", {"mbox": "mailto:u1@example.com", "name": "Una"}))
    assert people.counts == {"find_many": 5, "add_many": 2}, "a new name is written once"


@pytest.mark.mission("D2", "D3", "D4")
def test_the_example_runs() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "examples.learning"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=200
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "statements      3 stored, 1 already stored" in done.stdout
    assert "statements      0 stored, 4 already stored" in done.stdout

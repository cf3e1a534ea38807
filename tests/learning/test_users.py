"""Users of the learning records: merged from statements and files, and published in the warehouse."""

from __future__ import annotations

import asyncio
import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from examples.learning.records import Learning
from examples.learning.tables import ENRICHED, LEARNERS
from onceward.people import SourceRecord
from tests.learning.bus import (
    CSV,
    ROOT,
    Bus,
    bus,
    count,
    failing,
    import_csv,
    learning,
    lenient,
    place,
    published,
    rows,
    user,
)
from tests.learning.samples import JOHN, statement, uuid

__all__ = ["bus", "learning", "lenient", "place"]  # fixtures, re-exported so that pytest finds them


# ── users ──


@pytest.mark.mission("D2")
def test_a_user_is_recognised_by_each_of_their_identifiers(learning: Learning, bus: Bus, tmp_path: Path) -> None:
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


@pytest.mark.mission("D2")
def test_a_user_was_first_seen_by_the_first_source_and_last_seen_by_the_latest(
    learning: Learning, bus: Bus, tmp_path: Path
) -> None:
    seen = "SELECT extract(epoch FROM first_seen), extract(epoch FROM last_seen) FROM users"
    bus.publish(statement("s1"))
    [(first, last)] = rows(learning, seen)
    import_csv(learning, tmp_path, CSV)
    learning.publish_users("after the import")
    [(still_first, later)] = rows(learning, seen)
    assert still_first == first <= last < later


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
    assert rows(learning, "SELECT user_id, email, name FROM users") == [
        ("john@example.com", "john@example.com", "John")
    ]


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
def test_accounts_of_different_home_pages_are_different_users_even_if_page_and_name_join_to_the_same_text(
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

"""The learning-records document: its three test cases by name, and its statements, end to end."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from examples.learning.records import Learning
from onceward.errors import SourceError
from onceward.testing.queues.base import parked_records
from tests.learning.bus import (
    CSV,
    Bus,
    bus,
    count,
    import_csv,
    learning,
    lenient,
    place,
    published,
    rows,
    user,
)
from tests.learning.samples import JOHN, VERBS, statement, uuid

__all__ = ["bus", "learning", "lenient", "place"]  # fixtures, re-exported so that pytest finds them


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


@pytest.mark.mission("D1")
def test_case_1_as_written(learning: Learning, lenient: Bus, caplog: pytest.LogCaptureFixture) -> None:
    sent = {"id": "test-123", "actor": JOHN, "verb": {"id": f"{VERBS}completed"}, "object": {"id": "https://e.com/c"}}
    with caplog.at_level("INFO", "examples.learning"):
        lenient.publish(sent)
        lenient.publish(sent)
    assert rows(learning, "SELECT statement_id FROM statements") == [("test-123",)]
    assert "Statement test-123 already exists, skipping duplicate" in caplog.messages
    assert rows(learning, "SELECT count(s.timestamp) FROM statements s") == [(1,)], "the columns of the document"
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

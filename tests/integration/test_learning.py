"""The learning-records document: its three test cases by name, its flow and its error rules."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from examples.learning.records import ENRICHED, STATEMENTS, Learning
from onceward import StoreUnavailable
from onceward.identity import People, Person
from onceward.warehouse import Loaded
from onceward.warehouse.duck import DuckWarehouse

ROOT = Path(__file__).resolve().parents[2]
CSV = "Email,Team\njohn@example.com,UVM"


class House(DuckWarehouse):
    """A warehouse that can be away."""

    away: str = ""

    def known(self, *args: Any) -> set[Any]:
        if "known" in self.away:
            raise StoreUnavailable("the warehouse is away")
        return super().known(*args)

    def load(self, *args: Any, **choices: Any) -> Loaded:
        if "load" in self.away:
            raise StoreUnavailable("the warehouse is away")
        return super().load(*args, **choices)


@pytest.fixture
def learning(tmp_path: Path) -> Iterator[Learning]:
    house = House(":memory:")
    with People(f"sqlite:///{tmp_path}/people.db?synchronous=NORMAL") as people:
        yield Learning(people, house)
    house.close()


def statement(name: str, mbox: str = "mailto:john@example.com", **more: Any) -> dict[str, Any]:
    return {"id": name, "actor": {"mbox": mbox}, "verb": "completed", "object": "uvm-101"} | more


def rows(learning: Learning, sql: str) -> list[tuple[Any, ...]]:
    assert isinstance(learning.house, House)
    found: list[tuple[Any, ...]] = learning.house.connection.execute(sql).fetchall()
    return found


def import_csv(learning: Learning, folder: Path, content: str, name: str = "users.csv") -> Any:
    file = folder / name
    file.write_text(content, encoding="utf-8")
    return learning.import_users(file)


def user(learning: Learning, email: str = "john@example.com") -> Person:
    found = learning.people.find(email=email)
    assert found is not None
    return found


@pytest.mark.mission("D1")
def test_case_1_duplicate_statement(learning: Learning) -> None:
    learning.receive("message 1", [statement("test-123")])
    again = learning.receive("message 2", [statement("test-123")])
    assert (again.inserted, again.duplicates, again.replayed) == (0, 1, True)
    assert rows(learning, "SELECT count(*) FROM statements") == [(1,)]


@pytest.mark.mission("D2")
def test_case_2_same_user_from_multiple_sources(learning: Learning, tmp_path: Path) -> None:
    learning.receive("message 1", [statement("s1")])
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
    assert user(learning).of("csv") == [{"email": "john@example.com", "Team": "Formal"}], "updated, not piled up"


@pytest.mark.mission("D4")
def test_csv_data_enriches_statements_that_come_later_and_those_that_came_before(
    learning: Learning, tmp_path: Path
) -> None:
    learning.receive("1", [statement("early")])
    import_csv(learning, tmp_path, CSV)
    learning.receive("2", [statement("late", "mailto:John@Example.com")])
    learning.publish_users("users")
    assert rows(learning, "SELECT statement_id, teams::VARCHAR FROM statements ORDER BY 1") == [
        ("early", None),
        ("late", '["UVM"]'),
    ]
    joined = rows(learning, ENRICHED)
    assert [row[0] for row in joined] == ["early", "late"]
    assert all(json.loads(row[-1])[0]["Team"] == "UVM" for row in joined)


@pytest.mark.mission("D5")
def test_a_duplicate_check_that_fails_goes_on_and_the_merge_protects(
    learning: Learning, caplog: pytest.LogCaptureFixture
) -> None:
    learning.receive("1", [statement("s1")])
    assert isinstance(learning.house, House)
    learning.house.away = "known"
    loaded = learning.receive("2", [statement("s1"), statement("s2")])
    assert (loaded.inserted, loaded.unchanged) == (1, 1)
    assert "the duplicate check failed, going on" in caplog.text


@pytest.mark.mission("D5")
def test_a_merge_that_fails_is_not_acknowledged_and_the_redelivery_is_stored_once(learning: Learning) -> None:
    assert isinstance(learning.house, House)
    learning.house.away = "load"
    with pytest.raises(StoreUnavailable):
        learning.receive("1", [statement("s1")])
    learning.house.away = ""
    assert learning.receive("1", [statement("s1")]).inserted == 1
    assert learning.receive("1", [statement("s1")]).inserted == 0
    assert len(learning.people) == 1


@pytest.mark.mission("D5")
def test_a_user_look_up_that_fails_goes_on(learning: Learning, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(emails: Sequence[str]) -> dict[str, Person]:
        raise StoreUnavailable("the users are away")

    monkeypatch.setattr(learning.users, "_find", fails)
    assert learning.receive("1", [statement("s1")]).inserted == 1
    assert rows(learning, "SELECT teams FROM statements") == [(None,)]


@pytest.mark.mission("D6")
def test_a_thousand_statements_are_a_handful_of_questions(learning: Learning) -> None:
    many = [statement(f"s{n}", f"mailto:u{n % 20}@example.com") for n in range(1_000)]
    assert learning.receive("1", many).inserted == 1_000
    assert learning.users.asked == 1
    assert len(learning.people) == 20
    assert rows(learning, "SELECT count(*), count(DISTINCT user_id) FROM statements") == [(1_000, 20)]


def test_the_table_of_statements_is_keyed_by_their_ids() -> None:
    assert STATEMENTS.key == ("statement_id",)
    assert STATEMENTS.on_match == "keep"


@pytest.mark.mission("D2", "D3", "D4")
def test_the_example_runs() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "examples.learning"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=100
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "statements      3 stored, 1 known" in done.stdout
    assert "statements      0 stored, 4 known" in done.stdout

"""The error rules of the learning-records document, and how many questions a batch asks."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import Any

import pytest

from examples.learning.records import Learning
from tests.learning.bus import (
    ROOT,
    Bus,
    bus,
    count,
    failing,
    learning,
    lenient,
    place,
    rows,
)
from tests.learning.samples import statement

__all__ = ["bus", "learning", "lenient", "place"]  # fixtures, re-exported so that pytest finds them


# ── the error rules ──


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
    learning: Learning, bus: Bus, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(learning.house, "merge", failing)
    bus.queue.put(json.dumps(statement("s1")).encode())
    asyncio.run(bus.consumed(rounds=1))
    assert len(bus.queue) == 1, "it is still there"
    assert "it is away" in caplog.text, "the error is logged"
    monkeypatch.undo()
    asyncio.run(bus.consumed())
    assert count(learning) == 1
    assert len(learning.people) == 1


@pytest.mark.mission("D5")
def test_a_failed_user_lookup_does_not_stop_the_statement(
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
def test_a_thousand_statements_need_only_a_few_queries(learning: Learning, bus: Bus) -> None:
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

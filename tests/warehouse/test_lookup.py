"""Look-ups for many rows: one query for unknown keys, and never more memory than allowed."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest

from onceward import ConfigurationError
from onceward.warehouse import Lookup


class Users:
    """A user table that records its queries."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.fails = False

    def find(self, keys: Sequence[str]) -> dict[str, str]:
        self.asked.append(list(keys))
        if self.fails:
            raise ConnectionError("the database is away")
        return {key: key.upper() for key in keys if not key.startswith("unknown")}


@pytest.mark.mission("D6")
def test_a_thousand_rows_are_one_question_and_the_next_thousand_none() -> None:
    users = Users()
    lookup = Lookup(users.find)
    wanted = [f"u{n % 100}" for n in range(1000)]
    assert lookup.many(wanted)["u7"] == "U7"
    assert lookup.many(wanted)["u7"] == "U7"
    assert [len(keys) for keys in users.asked] == [100]


@pytest.mark.mission("D6")
def test_the_cache_is_bounded_and_the_least_used_goes_first() -> None:
    users = Users()
    lookup = Lookup(users.find, size=3)
    lookup.many(["a", "b", "c"])
    lookup.get("a")
    lookup.get("d")
    assert len(lookup) == 3
    lookup.many(["a", "c", "d"])
    assert users.asked == [["a", "b", "c"], ["d"]]
    assert lookup.many(f"u{n}" for n in range(1000)).keys() == {f"u{n}" for n in range(1000)}
    assert len(lookup) == 3


def test_a_key_that_was_not_found_is_looked_up_again() -> None:
    users = Users()
    lookup = Lookup(users.find)
    assert lookup.get("unknown") is None
    assert lookup.get("unknown") is None
    assert len(users.asked) == 2


def test_an_answer_expires_and_can_be_forgotten() -> None:
    users, now = Users(), [0.0]
    lookup = Lookup(users.find, max_age="60s", clock=lambda: now[0])
    lookup.get("a")
    now[0] = 60.0
    lookup.get("a")
    now[0] = 60.5
    lookup.get("a")
    assert len(users.asked) == 2
    lookup.forget("a")
    lookup.get("a")
    lookup.forget()
    lookup.get("a")
    assert len(users.asked) == 4


@pytest.mark.mission("D5")
def test_a_failed_look_up_returns_nothing_if_that_is_declared(caplog: pytest.LogCaptureFixture) -> None:
    users = Users()
    lookup = Lookup(users.find, on_failure="continue")
    lookup.get("a")
    users.fails = True
    with caplog.at_level(logging.WARNING, logger="onceward"):
        assert lookup.many(["a", "b"]) == {"a": "A"}
    assert "continuing without" in caplog.text
    users.fails = False
    assert lookup.many(["a", "b"]) == {"a": "A", "b": "B"}, "a failure is not remembered as an answer"


@pytest.mark.mission("D5")
def test_otherwise_a_failed_look_up_raises() -> None:
    users = Users()
    users.fails = True
    with pytest.raises(ConnectionError):
        Lookup(users.find).get("a")


def test_an_answer_in_flight_when_its_key_was_forgotten_is_not_kept() -> None:
    teams = {"anna": "UVM"}

    def find(keys: Sequence[str]) -> dict[str, str]:
        read = {key: teams[key] for key in keys}
        if teams["anna"] == "UVM":  # another writer changes it between our query and our answer
            teams["anna"] = "Formal"
            lookup.forget("anna")
        return read

    lookup: Lookup[str, str] = Lookup(find)
    assert lookup.get("anna") == "UVM", "this was true when it was queried"
    assert lookup.get("anna") == "Formal"


def test_a_cache_without_room_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="at least 1"):
        Lookup(Users().find, size=0)

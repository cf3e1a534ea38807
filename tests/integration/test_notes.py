"""Notes are small texts, and a record that cannot be read can still be removed."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from enum import StrEnum
from typing import Any

import pytest

from onceward import ConfigurationError, applied
from onceward.errors import StoreBroken
from onceward.recovery import Recovered
from onceward.stores.sqlite import maintenance as upkeep
from onceward.stores.sqlite import schema
from tests.cli.calls import call
from tests.faces import Face


class Word(StrEnum):
    PAGE = "page"


NO_NOTES: list[Any] = [{"pages": 3}, {"page": None}, {"page": b"3"}, {"": "x"}, {"page": "x" * 4096}, {"é" * 2048: "x"}]


@pytest.mark.parametrize("note", NO_NOTES, ids=repr)
def test_what_is_no_small_text_is_refused_and_the_claim_goes_on(face: Face, note: dict[str, Any]) -> None:
    with face.claim("k") as claim:
        with pytest.raises(ConfigurationError, match="note"):
            claim.annotate(**note)
        claim.check()
        assert claim.note == {}
    assert face.read("k").note == {}


@pytest.mark.parametrize("note", [*NO_NOTES, {5: "x"}, ["page"], "page"], ids=repr)
def test_a_claim_is_not_begun_with_such_a_note(face: Face, note: Any) -> None:
    with pytest.raises(ConfigurationError, match="note"), face.claim("k", note=note):
        pytest.fail("begun")
    assert face.read("k") is None


def test_notes_add_up(face: Face) -> None:
    with face.claim("k", note={"a": "x" * 3000}) as claim:
        with pytest.raises(ConfigurationError, match="4096"):
            claim.annotate(b="x" * 3000)
        claim.annotate(a="y", b="x" * 3000)
    assert face.read("k").note["a"] == "y"


def test_a_text_of_a_class_of_its_own_is_noted_as_text(face: Face) -> None:
    with face.claim("k", note={Word.PAGE: Word.PAGE}) as claim:
        claim.annotate(odd="\ud800")
    assert {type(text) for text in face.another().read("k").note.values()} == {str}
    assert face.read("k").note["page"] == "page"


def test_the_callers_own_dict_is_not_kept(face: Face) -> None:
    note = {"a": "b"}
    block = face.once.claim("k", note=note)
    note["a"] = "changed"
    assert block._job.note == {"a": "b"}


# ── rows that cannot be read ──

HOUR = 3600 * 1_000_000
DAMAGE = [("note", '{"a": 5}'), ("arguments", "["), ("state", "'WHO?'"), ("after_crash", 9)]


def damage(face: Face, column: str, value: Any) -> None:
    with closing(sqlite3.connect(face.place.path)) as connection, connection:
        connection.execute(f"UPDATE onceward_records SET {column} = ? WHERE key = 'k'", (value,))


@pytest.mark.parametrize(("column", "value"), DAMAGE)
def test_by_force_a_record_is_forgotten_that_cannot_be_read(sqlite_face: Face, column: str, value: Any) -> None:
    sqlite_face.run("k", lambda: "first")
    token = sqlite_face.read("k").token
    damage(sqlite_face, column, value)
    with pytest.raises(StoreBroken):
        sqlite_face.read("k")
    with pytest.raises(StoreBroken):
        sqlite_face.forget("k")
    sqlite_face.clock.set_back("10m")
    assert sqlite_face.forget("k", force=True)
    assert sqlite_face.read("k") is None
    assert sqlite_face.outcome("k", lambda: "again").token > token, "no late owner passes"
    assert sqlite_face.read("k").value == "again"


@pytest.mark.parametrize(("column", "value"), DAMAGE)
def test_a_record_that_cannot_be_read_is_purged_when_it_is_over_and_keeps_no_other_one(
    sqlite_face: Face, column: str, value: Any
) -> None:
    for key in ("k", "other"):
        sqlite_face.another(window="1h").run(key, lambda: None)
    damage(sqlite_face, column, value)
    assert sqlite_face.purge() == 0
    sqlite_face.clock.advance("3h")
    assert sqlite_face.purge() == 2


@pytest.mark.parametrize(("valid_until", "token", "gone"), [(50, 1, 1), (HOUR * 3, 1, 0), (50, HOUR * 2, 0)])
def test_whether_it_is_over_is_decided_once_more_where_nobody_else_writes(
    valid_until: int, token: int, gone: int
) -> None:
    cursor = sqlite3.connect(":memory:", isolation_level=None).cursor()
    schema.prepare(cursor, "memory", migrate=True)
    cursor.execute(
        "INSERT INTO onceward_records (id, scope, key, state, token, valid_until)"
        " VALUES (x'01', 's', 'k', 'WHO?', ?, ?)",
        (token, valid_until),
    )
    assert upkeep.purge(cursor, [b"\1"], HOUR * 2) == gone
    cursor.connection.close()


# ── who cleared it is told ──


def test_forgetting_and_resolving_are_told(face: Face) -> None:
    face.run("k", lambda: None)
    assert face.forget("k")
    assert not face.forget("k")
    face.run("k", lambda: None)
    face.forget("k", force=True)
    assert [event.reason for event in face.told("forgotten")] == ["", "forced"]

    face.silent_owner("parked", after_crash="park", lease="1s")
    face.clock.advance("1h")
    face.outcome("parked", lambda: None)
    face.resolve("parked", applied(5))
    (told,) = face.told("resolved")
    assert (told.reason, told.state) == ("applied", "COMPLETED")


@pytest.mark.parametrize(("column", "value"), [one for one in DAMAGE if one[0] != "state"])
def test_a_recovery_worker_skips_a_record_that_cannot_be_read_tells_and_counts_it(
    sqlite_face: Face, column: str, value: Any
) -> None:
    """One of them must not stop the others, for ever."""
    ran: list[int] = []

    @sqlite_face(key="{n}", name="work", store_input=True, retry=ValueError)
    def work(n: str) -> None:
        ran.append(1)
        if len(ran) <= 3:
            raise ValueError(n)

    for key in ("a", "k", "z"):
        assert work.outcome(key).kind == "failed"
    damage(sqlite_face, column, value)
    sqlite_face.clock.advance("1h")
    told: list[Recovered] = []
    total = sqlite_face._wait(sqlite_face.once.recover(tell=told.append))
    assert (total.done, total.unreadable, total.needs_attention) == (2, 1, True)
    assert {one.key for one in told if "what no Onceward writes" in one.error} == {"k"}


def test_one_that_cannot_be_read_does_not_hide_the_others_in_a_list(sqlite_face: Face) -> None:
    for key in ("a", "k", "z"):
        sqlite_face.run(key, lambda: None)
    damage(sqlite_face, *DAMAGE[0])
    url = f"sqlite:///{sqlite_face.place.path}"
    listed = call("ls", "--store", url)
    assert {one["key"] for one in json.loads(listed.stdout)} == {"a", "z"}
    assert "the record of k holds what no Onceward writes" in listed.stderr

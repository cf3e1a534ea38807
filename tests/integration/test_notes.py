"""Notes are small texts, and a record that cannot be read can still be removed."""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
from contextlib import closing
from enum import StrEnum
from typing import Any

import pytest

from onceward import AsyncOnce, ConfigurationError, applied
from onceward.errors import RecordBroken
from onceward.protocol.ports import Filter
from onceward.recovery import Recovered
from onceward.stores.sqlite import maintenance as upkeep
from onceward.stores.sqlite import schema
from onceward.stores.sqlite.joined import errors_explained
from tests.cli.calls import call
from tests.clients import SyncClient


class Word(StrEnum):
    PAGE = "page"


NO_NOTES: list[Any] = [{"pages": 3}, {"page": None}, {"page": b"3"}, {"": "x"}, {"page": "x" * 4096}, {"é" * 2048: "x"}]


@pytest.mark.parametrize("note", NO_NOTES, ids=repr)
def test_a_note_that_is_not_a_small_text_is_refused_and_the_claim_continues(
    client: SyncClient, note: dict[str, Any]
) -> None:
    with client.claim("k") as claim:
        with pytest.raises(ConfigurationError, match="note"):
            claim.annotate(**note)
        claim.check()
        assert claim.note == {}
    assert client.read("k").note == {}


@pytest.mark.parametrize("note", [*NO_NOTES, {5: "x"}, ["page"], "page"], ids=repr)
def test_a_claim_is_not_begun_with_such_a_note(client: SyncClient, note: Any) -> None:
    with pytest.raises(ConfigurationError, match="note"), client.claim("k", note=note):
        pytest.fail("begun")
    assert client.read("k") is None


def test_notes_add_up(client: SyncClient) -> None:
    with client.claim("k", note={"a": "x" * 3000}) as claim:
        with pytest.raises(ConfigurationError, match="4096"):
            claim.annotate(b="x" * 3000)
        claim.annotate(a="y", b="x" * 3000)
    assert client.read("k").note["a"] == "y"


def test_a_text_of_a_class_of_its_own_is_noted_as_text(client: SyncClient) -> None:
    with client.claim("k", note={Word.PAGE: Word.PAGE}) as claim:
        claim.annotate(odd="\ud800")
    assert {type(text) for text in client.another().read("k").note.values()} == {str}
    assert client.read("k").note["page"] == "page"


def test_the_callers_own_dict_is_not_kept(client: SyncClient) -> None:
    note = {"a": "b"}
    block = client.once.claim("k", note=note)
    note["a"] = "changed"
    assert block._job.note == {"a": "b"}


# ── rows that cannot be read ──

HOUR = 3600 * 1_000_000
DAMAGE = [("note", '{"a": 5}'), ("arguments", "["), ("state", "'WHO?'"), ("after_crash", 9)]


def damage(client: SyncClient, column: str, value: Any) -> None:
    with closing(sqlite3.connect(client.backend.path)) as connection, connection:
        place = "CAST(? AS TEXT)" if isinstance(value, bytes) else "?"
        connection.execute(f"UPDATE onceward_records SET {column} = {place} WHERE key = 'k'", (value,))


@pytest.mark.parametrize(("column", "value"), DAMAGE)
def test_force_forgets_a_record_that_cannot_be_read(sqlite_client: SyncClient, column: str, value: Any) -> None:
    sqlite_client.run("k", lambda: "first")
    token = sqlite_client.read("k").token
    damage(sqlite_client, column, value)
    with pytest.raises(RecordBroken):
        sqlite_client.read("k")
    with pytest.raises(RecordBroken):
        sqlite_client.forget("k")
    sqlite_client.clock.set_back("10m")
    assert sqlite_client.forget("k", force=True)
    assert sqlite_client.read("k") is None
    assert sqlite_client.outcome("k", lambda: "again").token > token, "the fencing token rejects late owners"
    assert sqlite_client.read("k").value == "again"


NOT_UTF_8 = ("arguments", b'{"page": "secret \xff"}')


@pytest.mark.finding("N24")
@pytest.mark.parametrize(("column", "value"), [*DAMAGE, NOT_UTF_8])
def test_a_damaged_record_is_not_an_outage(
    sqlite_client: SyncClient, caplog: pytest.LogCaptureFixture, column: str, value: Any
) -> None:
    """The work does not run again even with `on_store_down="run"`, other keys can be used, and each call is logged."""
    bold = sqlite_client.another(on_store_down="run")
    sqlite_client.silent_owner("k")
    damage(sqlite_client, column, value)
    for _ in range(2):
        caplog.clear()
        with pytest.raises(RecordBroken) as raised:
            bold.run("k", lambda: pytest.fail("its owner may be running it"))
        assert "secret" not in str(raised.value)
        [line] = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
        assert line.startswith("claim_failed k [")
        assert line.endswith("error RecordBroken")
        assert bold.run("other", lambda: "works") == "works"


@pytest.mark.finding("N24")
@pytest.mark.parametrize(("column", "value"), [*DAMAGE, NOT_UTF_8])
def test_a_damaged_record_does_not_fail_the_other_claims_of_its_batch(
    sqlite_client: SyncClient, column: str, value: Any
) -> None:
    keys = ["a", "k", "b", "c"]
    sqlite_client.silent_owner("k")
    damage(sqlite_client, column, value)

    async def work() -> str:
        return ""

    async def run_all() -> list[Any]:
        async with AsyncOnce(f"sqlite:///{sqlite_client.backend.path}") as once:
            return await asyncio.gather(*(once.run(key, work) for key in keys), return_exceptions=True)

    for _ in range(2):
        first, broken, *others = asyncio.run(run_all())
        assert [first, *others] == [""] * 3
        assert type(broken) is RecordBroken


@pytest.mark.finding("N28")
@pytest.mark.parametrize("column", ["key", "scope", "owner", "error"])
def test_text_that_is_not_utf_8_is_shown_with_escapes(sqlite_client: SyncClient, column: str) -> None:
    sqlite_client.run("other", lambda: None)
    sqlite_client.silent_owner("k", lease="1s")
    damage(sqlite_client, column, b"caf\xe9")
    page = sqlite_client.drive(sqlite_client.once.store.scan(Filter(), cursor=None, limit=10, timeout=30))
    assert "caf\\xe9" in {getattr(one, column) for one in page.records}
    sqlite_client.clock.advance("1m")
    assert sqlite_client.run("k", lambda: "again") == "again"


@pytest.mark.parametrize(("column", "value"), DAMAGE)
def test_an_expired_record_that_cannot_be_read_is_purged_and_blocks_no_other(
    sqlite_client: SyncClient, column: str, value: Any
) -> None:
    for key in ("k", "other"):
        sqlite_client.another(window="1h").run(key, lambda: None)
    damage(sqlite_client, column, value)
    assert sqlite_client.purge() == 0
    sqlite_client.clock.advance("3h")
    assert sqlite_client.purge() == 2


@pytest.mark.parametrize(("valid_until", "token", "gone"), [(50, 1, 1), (HOUR * 3, 1, 0), (50, HOUR * 2, 0)])
def test_purge_checks_the_expiry_again_inside_its_own_transaction(valid_until: int, token: int, gone: int) -> None:
    cursor = sqlite3.connect(":memory:", isolation_level=None).cursor()
    schema.prepare(cursor, "memory", migrate=True)
    cursor.execute(
        "INSERT INTO onceward_records (id, scope, key, state, token, updated_at, valid_until)"
        " VALUES (x'01', 's', 'k', 'WHO?', ?, 0, ?)",
        (token, valid_until),
    )
    assert upkeep.purge(cursor, [b"\1"], HOUR * 2) == gone
    cursor.connection.close()


@pytest.mark.finding("N24")
def test_text_that_is_not_utf_8_is_not_quoted_in_an_error_of_your_own_transaction() -> None:
    """Your connection keeps its own text settings, so such text cannot be shown with escapes there."""
    with (
        closing(sqlite3.connect(":memory:")) as connection,
        pytest.raises(RecordBroken, match=r"your transaction: a row has text that is not UTF-8") as raised,
        errors_explained(connection),
    ):
        connection.execute("SELECT CAST(x'736563726574FF' AS TEXT)").fetchall()
    assert "secret" in str(raised.value.__cause__)
    assert "secret" not in str(raised.value)


# ── events of forget and resolve ──


def test_forgetting_and_resolving_emit_events(client: SyncClient) -> None:
    client.run("k", lambda: None)
    assert client.forget("k")
    assert not client.forget("k")
    client.run("k", lambda: None)
    client.forget("k", force=True)
    assert [event.reason for event in client.events_named("forgotten")] == ["", "forced"]

    client.silent_owner("parked", after_crash="park", lease="1s")
    client.clock.advance("1h")
    client.outcome("parked", lambda: None)
    client.resolve("parked", applied(5))
    (resolved,) = client.events_named("resolved")
    assert (resolved.reason, resolved.state) == ("applied", "COMPLETED")


@pytest.mark.parametrize(("column", "value"), [one for one in DAMAGE if one[0] != "state"])
def test_a_recovery_worker_skips_reports_and_counts_a_record_that_cannot_be_read(
    sqlite_client: SyncClient, column: str, value: Any
) -> None:
    """One unreadable record must not block the others permanently."""
    ran: list[int] = []

    @sqlite_client(key="{n}", name="work", store_input=True, retry=ValueError)
    def work(n: str) -> None:
        ran.append(1)
        if len(ran) <= 3:
            raise ValueError(n)

    for key in ("a", "k", "z"):
        assert work.outcome(key).kind == "failed"
    damage(sqlite_client, column, value)
    sqlite_client.clock.advance("1h")
    results: list[Recovered] = []
    total = sqlite_client.wait(sqlite_client.once.recover(on_result=results.append))
    assert (total.done, total.unreadable, total.needs_attention) == (2, 1, True)
    assert {one.key for one in results if "invalid content" in one.error} == {"k"}


def test_a_record_that_cannot_be_read_does_not_hide_the_others_in_a_list(sqlite_client: SyncClient) -> None:
    for key in ("a", "k", "z"):
        sqlite_client.run(key, lambda: None)
    damage(sqlite_client, *DAMAGE[0])
    url = f"sqlite:///{sqlite_client.backend.path}"
    listed = call("ls", "--store", url)
    assert {one["key"] for one in json.loads(listed.stdout)} == {"a", "z"}
    assert "the record of k is invalid, and was skipped" in listed.stderr

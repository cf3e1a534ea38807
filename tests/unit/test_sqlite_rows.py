"""Records and rows: nothing may change on the way to the file and back."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict, replace

from onceward.errors import StoreBroken
from onceward.protocol import transitions
from onceward.protocol.record import AfterCrash, Record, RecordState
from onceward.protocol.requests import Answer, ClaimRequest, Complete, Validity, Verdict
from onceward.stores import sql
from onceward.stores.sqlite import schema, table

NUMBERS = st.integers(min_value=-(2**63), max_value=2**63 - 1)
TEXTS = st.text(max_size=20)
MAPPINGS = st.dictionaries(TEXTS, TEXTS, max_size=3)
RECORDS = st.builds(
    Record,
    id=st.binary(min_size=1, max_size=40),
    scope=TEXTS,
    key=TEXTS,
    state=st.sampled_from(RecordState),
    token=NUMBERS,
    nonce=st.binary(max_size=16),
    cycle=NUMBERS,
    attempt=NUMBERS,
    created_at=NUMBERS,
    claimed_at=NUMBERS,
    updated_at=NUMBERS,
    renewed_at=NUMBERS,
    lease_until=st.none() | NUMBERS,
    after_crash=st.sampled_from(AfterCrash),
    max_attempts=NUMBERS,
    ask_first=st.booleans(),
    released=st.booleans(),
    fingerprint=st.binary(max_size=40),
    arguments=MAPPINGS,
    result=st.none() | st.binary(max_size=40),
    digest=st.binary(max_size=40),
    stored=st.booleans(),
    error_type=TEXTS,
    error=TEXTS,
    final=st.booleans(),
    retry_at=st.none() | NUMBERS,
    valid_until=st.none() | NUMBERS,
    slide=NUMBERS,
    owner=TEXTS,
    note=MAPPINGS,
    min_reader=st.integers(0, 100),
)


def fresh_table() -> sqlite3.Cursor:
    cursor = sqlite3.connect(":memory:", isolation_level=None).cursor()
    schema.prepare(cursor, "test", migrate=True)
    return cursor


def put(cursor: sqlite3.Cursor, record: Record, before: Record | None = None) -> None:
    found = {} if before is None else {before.id: before}
    table.write(cursor, found, [Answer(Verdict.OK, record, 0)])


def types(record: Record) -> dict[str, type]:
    return {name: type(value) for name, value in asdict(record).items()}


@given(RECORDS)
def test_a_record_comes_back_as_it_was_field_by_field_and_type_by_type(record: Record) -> None:
    cursor = fresh_table()
    put(cursor, record)
    for selection in (table.SELECT_RECORDS, table.SELECT_ON_CALLER_CONNECTION):
        back = selection.fetch(cursor, [record.id])[record.id]
        assert back == record
        assert types(back) == types(record)
    assert table.SELECT_WITHOUT_RESULTS.fetch(cursor, [record.id]) == {record.id: replace(record, result=None)}
    cursor.connection.close()


@given(RECORDS, RECORDS)
def test_any_record_can_become_any_other_although_only_what_differs_is_written(before: Record, after: Record) -> None:
    cursor = fresh_table()
    after = replace(after, id=before.id)
    put(cursor, before)
    put(cursor, after, before)
    assert table.SELECT_RECORDS.fetch(cursor, [before.id]) == {before.id: after}
    cursor.connection.close()


def test_the_columns_are_the_fields_of_the_record_and_null_is_the_usual_value() -> None:
    cursor = fresh_table()
    columns = [row[1] for row in cursor.execute("PRAGMA table_info(onceward_records)")]
    assert sorted(columns) == sorted(Record.__struct_fields__)
    cursor.execute("INSERT INTO onceward_records (id, scope, key, token, updated_at) VALUES (x'01', 's', 'k', 7, 8)")
    assert set(sql.NULL_MEANS).isdisjoint(sql.NULL_MEANS_SAME_AS)
    same: dict[str, Any] = dict.fromkeys(sql.NULL_MEANS_SAME_AS, 7)
    usual = Record(id=b"\1", scope="s", key="k", token=7, updated_at=8, **sql.NULL_MEANS, **same)
    assert table.SELECT_RECORDS.fetch(cursor, [b"\1"]) == {b"\1": usual}
    assert [value for value in sql.row_from_record(usual) if value is not None] == [b"\1", "s", "k", 7, 8]
    cursor.connection.close()


@pytest.mark.parametrize(("column", "other"), sql.NULL_MEANS_SAME_AS.items())
def test_a_time_is_null_only_if_it_equals_the_one_that_null_stands_for(column: str, other: str) -> None:
    times: dict[str, Any] = {"token": 1, "cycle": 2, "created_at": 3, "claimed_at": 4, "updated_at": 5, "renewed_at": 6}
    for same, value in times.items():
        record = Record(b"\1", "s", "k", RecordState.PENDING, **{**times, column: value})
        stored = sql.row_from_record(record)[sql.FIELDS.index(column)]
        assert stored == (None if same == other else value)


def test_a_usual_record_stores_only_what_differs_from_call_to_call() -> None:
    request = ClaimRequest(id=b"\1", scope="s", key="k", nonce=b"n", lease=1_000, owner="me", fingerprint=b"f")
    claimed, _ = transitions.claim(None, request, 5)
    names = [name for name, value in zip(sql.FIELDS, sql.row_from_record(claimed), strict=True) if value is not None]
    common = ["id", "scope", "key", "token", "nonce", "updated_at", "fingerprint", "owner"]
    assert sorted(names) == sorted([*common, "state", "lease_until"])
    validity = Validity(lasting=9)
    done, _ = transitions.settle(claimed, Complete(b"\1", claimed.token, b"n", b"r", b"d", validity=validity), 6)
    assert done is not None
    names = [name for name, value in zip(sql.FIELDS, sql.row_from_record(done), strict=True) if value is not None]
    assert sorted(names) == sorted([*common, "result", "digest", "valid_until"])


def test_a_record_completed_forever_is_only_in_the_index_of_ids() -> None:
    cursor = fresh_table()
    claimed, _ = transitions.claim(None, ClaimRequest(id=b"\1", scope="s", key="k", nonce=b"n", lease=1_000), 5)
    completed, _ = transitions.settle(claimed, Complete(id=b"\1", token=claimed.token, nonce=b"n"), 6)

    def indexed() -> list[int]:
        queries = (
            "SELECT count(*) FROM onceward_records INDEXED BY onceward_purgeable WHERE valid_until IS NOT NULL",
            "SELECT count(*) FROM onceward_records INDEXED BY onceward_unfinished WHERE state IS NOT NULL",
        )
        return [cursor.execute(query).fetchall()[0][0] for query in queries]

    put(cursor, claimed)
    assert indexed() == [0, 1]
    assert completed is not None
    put(cursor, completed, claimed)
    assert indexed() == [0, 0]
    cursor.connection.close()


@pytest.mark.fault("F60")
def test_an_error_text_with_lone_surrogates_and_an_endless_time_are_recorded_in_a_form_that_sqlite_can_hold() -> None:
    cursor = fresh_table()
    plain = Record(id=b"\1", scope="s", key="k", state=RecordState.PENDING, token=1)
    odd = replace(plain, id=b"\2", error="file \udcff.txt", note={"a\ud800": "b"}, valid_until=2**70)
    last = replace(plain, id=b"\3")
    table.write(cursor, {}, [Answer(Verdict.OK, record, 0) for record in (plain, odd, last)])
    found = table.SELECT_RECORDS.fetch(cursor, [b"\1", b"\2", b"\3"])
    assert found[b"\1"] == plain
    assert found[b"\3"] == last, "one that SQLite cannot hold spoils no other"
    assert found[b"\2"].error == r"file \udcff.txt"
    assert found[b"\2"].note == {r"a\ud800": "b"}
    assert found[b"\2"].valid_until == 2**63 - 1
    cursor.connection.close()


@pytest.mark.fault("F67")
def test_what_a_newer_layout_holds_need_not_be_understood_to_be_left_alone() -> None:
    cursor = fresh_table()
    put(cursor, Record(id=b"\1", scope="s", key="k", state=RecordState.COMPLETED, token=9, min_reader=2))
    cursor.execute("UPDATE onceward_records SET state = 'SKIPPED', after_crash = 77, note = '[1]'")
    record = table.SELECT_RECORDS.fetch(cursor, [b"\1"])[b"\1"]
    assert (record.token, record.min_reader) == (9, 2)
    assert transitions.row_of(record, 10**18) is transitions.Row.NEWER
    assert not transitions.purgeable(record, 10**18)
    cursor.connection.close()


@pytest.mark.parametrize(
    ("column", "value"), [("state", "DONE"), ("after_crash", 9), ("note", "{"), ("arguments", "[]")]
)
def test_a_record_of_our_own_layout_that_we_cannot_read_is_reported_and_never_guessed(column: str, value: Any) -> None:
    cursor = fresh_table()
    put(cursor, Record(id=b"\1", scope="s", key="order 7", state=RecordState.COMPLETED, token=9))
    cursor.execute(f"UPDATE onceward_records SET {column} = ?", (value,))
    with pytest.raises(StoreBroken, match="order 7"):
        table.SELECT_RECORDS.fetch(cursor, [b"\1"])
    cursor.connection.close()


@pytest.mark.parametrize("number", [1, 2, 4, 5, 17, 256, 257, 499, 500, 501, 1_003])
def test_any_number_of_ids_is_found_in_statements_of_a_few_sizes(number: int) -> None:
    cursor = fresh_table()
    ids = [n.to_bytes(4, "big") for n in range(number)]
    records = [Record(id=id, scope="s", key="k", state=RecordState.PENDING, token=n) for n, id in enumerate(ids)]
    table.write(cursor, {}, [Answer(Verdict.OK, record, 0) for record in records])
    wanted = [*reversed(ids), b"absent"]
    assert table.SELECT_RECORDS.fetch(cursor, wanted) == {record.id: record for record in records}
    assert table.SELECT_RECORDS.fetch(cursor, []) == {}
    cursor.connection.close()


def test_libraries_without_strict_tables_check_what_decides_about_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 0))
    cursor = fresh_table()
    with pytest.raises(sqlite3.IntegrityError):
        cursor.execute(
            "INSERT INTO onceward_records (id, scope, key, token, updated_at) VALUES ('text', 's', 'k', 7, 7)"
        )
    with pytest.raises(sqlite3.IntegrityError):
        cursor.execute(
            "INSERT INTO onceward_records (id, scope, key, token, updated_at) VALUES (x'01', 's', 'k', 'x', 7)"
        )
    put(cursor, Record(id=b"\1", scope="s", key="k", state=RecordState.FREE, token=7))
    cursor.connection.close()

"""Records as documents of Firestore, without a server: nothing is lost on the way, and nothing expires too early."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward.errors import ConfigurationError, StoreBroken
from onceward.keys.key import Scope, make_key
from onceward.protocol import transitions
from onceward.protocol.latest import EventDelivery
from onceward.protocol.record import AfterCrash, Record, RecordState
from onceward.stores.firestore.calls import MAX_CALL_BYTES, nest_fields
from onceward.stores.firestore.documents import Records, expiry_of
from onceward.stores.firestore.latest import split_batches
from onceward.stores.firestore.layout import Layout
from onceward.stores.firestore.names import entity_name, is_valid_id, mark_name, name_of
from onceward.stores.firestore.values import plain, size_of_fields, value_of
from tests.firestore_backends import LOCKS

HOUR = 3_600_000_000
TIMES = st.integers(0, 2**62)
RECENT = st.integers(1_700_000_000_000_000, 1_700_000_000_000_000 + 100 * 24 * HOUR)
WORDS = st.dictionaries(st.text(), st.text(), max_size=3) | st.dictionaries(
    st.sampled_from(["gcs_source_path", "gcs_output_path", "note", "onceward"]), st.text()
)
BYTES = st.binary(max_size=40)

records = st.builds(
    Record,
    id=st.just(bytes(32)),
    scope=st.text(),
    key=st.text(),
    state=st.sampled_from(RecordState),
    token=st.integers(1, 2**62),
    nonce=BYTES,
    cycle=TIMES,
    attempt=st.integers(0, 9),
    created_at=TIMES,
    claimed_at=TIMES,
    updated_at=TIMES,
    renewed_at=TIMES,
    lease_until=st.none() | TIMES,
    after_crash=st.sampled_from(AfterCrash),
    max_attempts=st.integers(0, 9),
    fingerprint=BYTES,
    arguments=WORDS,
    owner=st.text(),
    note=WORDS,
    ask_first=st.booleans(),
    released=st.booleans(),
    result=st.none() | BYTES,
    digest=BYTES,
    stored=st.booleans(),
    error_type=st.text(),
    error=st.text(),
    final=st.booleans(),
    retry_at=st.none() | TIMES,
    valid_until=st.none() | TIMES,
    slide=TIMES,
)
lives = st.builds(
    Record,
    id=st.just(bytes(32)),
    scope=st.just("s"),
    key=st.just("k"),
    state=st.sampled_from(RecordState),
    token=RECENT,
    attempt=st.integers(1, 3),
    max_attempts=st.integers(0, 3),
    lease_until=st.none() | RECENT,
    valid_until=st.none() | RECENT,
    after_crash=st.sampled_from(AfterCrash),
    released=st.booleans(),
    final=st.booleans(),
)


ALL_SHOWN = Layout(fields={name: f"my_{name}" for name in Record.__struct_fields__ if name != "id"})


@pytest.mark.parametrize("layout", [Layout(), LOCKS, ALL_SHOWN], ids=["plain", "locks", "all shown"])
@given(record=records)
def test_a_record_comes_back_from_its_document_as_it_was(layout: Layout, record: Record) -> None:
    kept = Records(layout)
    fields = nest_fields(kept.changes(None, record))
    assert kept.record(record.id, fields) == record
    assert kept.id_in(fields) == record.id


@given(before=records, after=records)
def test_what_changed_is_what_is_written(before: Record, after: Record) -> None:
    """The fields of the one, overwritten with the changes to the other, are the other."""
    kept = Records(LOCKS)
    assert kept.changes(before, before) == {}
    whole = {**kept.changes(None, before), **kept.changes(before, after)}
    assert kept.record(after.id, nest_fields(whole)) == after


@given(record=lives, now=RECENT)
def test_the_expiry_policy_deletes_only_what_a_purge_may_delete(record: Record, now: int) -> None:
    end = expiry_of(record)
    if end is not None and now >= end:
        assert transitions.purgeable(record, now)
    if transitions.purgeable(record, now):
        assert end is not None
        assert end <= now, "and all of it"


def test_a_content_hash_is_the_document_and_every_other_key_its_hash() -> None:
    content = f"sha256:{'ab' * 32}"
    scope = Scope("shop", "extract")
    own = make_key(scope, content)
    assert name_of(own.id, scope.text, own.text) == content
    tenant = Scope("shop", "extract", "acme")
    assert name_of(make_key(tenant, content).id, tenant.text, content) == make_key(tenant, content).id.hex()
    shown_so = make_key(scope, ("something", "else"), text=content)
    assert name_of(shown_so.id, scope.text, shown_so.text) == shown_so.id.hex(), "only its text looks like a hash"
    for key in ("sha256:ab", content.upper(), f"{content}/x", "plain"):
        other = make_key(scope, key)
        assert name_of(other.id, scope.text, other.text) == other.id.hex()


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "__x__", "é" * 751, "NUL \0", "\udc80"])
@pytest.mark.fault("F9")
def test_what_firestore_does_not_take_as_an_id_is_known(name: str) -> None:
    assert not is_valid_id(name)


def test_entities_and_marks_have_names_that_people_can_read() -> None:
    scope = Scope("ops", "services")
    own = make_key(scope, "prod__api")
    assert entity_name(own.id, scope.text, own.text) == "prod__api"
    slashed = make_key(scope, "prod/api")
    assert entity_name(slashed.id, scope.text, slashed.text) == slashed.id.hex()
    namesake = make_key(scope, slashed.id.hex())
    assert entity_name(namesake.id, scope.text, namesake.text) == namesake.id.hex(), (
        "that document belongs to another entity"
    )
    assert mark_name(b"1234" + bytes(16)) == "00" * 16 + "_1234"
    assert mark_name(b"a/b\xc3" + bytes(16)) == "00" * 16 + "_" + b"a/b\xc3".hex()
    assert len({mark_name(bytes([one]) * 16) for one in range(9)}) == 9


def test_values_of_any_kind_are_shown() -> None:
    shown = {"n": None, "t": True, "i": 7, "big": 2**70, "f": 1.5, "s": "é", "b": b"\0", "l": [1, [2]], "m": {"x": {1}}}
    back = plain(value_of(shown))
    assert back == {**shown, "big": str(2**70), "m": {"x": [1]}, "l": [1, "[2]"]}, "no arrays in arrays"
    assert plain(value_of({"__x__": 1})) == "{'__x__': 1}", "nor members that Firestore keeps for itself"
    assert size_of_fields(value_of({"ab": "cde"}).map_value.fields) == 3 + 4


@pytest.mark.fault("F42")
@pytest.mark.parametrize("until", [1_794_827_859, 1_794_827_859_000, 0])
def test_a_lock_written_by_hand_whose_time_is_a_number_is_not_guessed_at(until: int) -> None:
    """Read as microseconds, the lock of a running worker would have expired in 1970."""
    written = value_of({"status": "PENDING", "lock_expires_at": until}).map_value.fields
    with pytest.raises(StoreBroken):
        Records(LOCKS).record(bytes(32), written)


def test_a_note_written_by_hand_may_be_a_number() -> None:
    written = value_of({"state": "FAILED", "note": {"page": 3}}).map_value.fields
    assert Records(Layout()).record(bytes(32), written).note == {"page": "3"}


@pytest.mark.parametrize(
    "names",
    [
        {"fields": {"state": "status", "key": "status"}},
        {"fields": {"state": "onceward"}},
        {"fields": {"state": "expire_at"}},
        {"fields": {"state": "status"}, "notes": ("status",)},
        {"notes": ("expire_at",)},
        {"marks": {"created_at": "expire_at"}},
        {"marks": {"expires_at": "until"}},
        {"states": {"updated_at": "expire_at"}},
        {"states": {"updated_at": "at"}, "expiry": "at"},
    ],
    ids=str,
)
def test_a_field_has_room_for_one_thing(names: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        Layout(**names)
    assert Layout(states={"expires_at": "gone"}, marks={"expires_at": "gone"}, expiry="gone").expiry == "gone"


def test_a_batch_of_large_values_is_cut_to_what_one_call_carries() -> None:
    """Ten megabytes, says Google; the emulator takes more."""
    value = bytes(700_000)
    many = [EventDelivery(bytes([n]) * 32, "s", "e", b"", value if n % 2 else b"small") for n in range(40)]
    parts = list(split_batches(many))
    assert sorted(place for part in parts for place in part) == list(range(40))
    assert max(sum(len(many[place].value or b"") for place in part) for part in parts) <= MAX_CALL_BYTES
    assert len(list(split_batches([one for one in many if one.value == b"small"]))) == 1

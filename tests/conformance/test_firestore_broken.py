"""Stores on Firestore with one bug each, and the check that catches it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from onceward.errors import OncewardError
from onceward.protocol import latest as rules
from onceward.stores.firestore import audit as trail
from onceward.stores.firestore import documents, latest, table, values
from onceward.stores.firestore import maintenance as upkeep
from onceward.stores.firestore.calls import FirestoreCalls, Write
from onceward.stores.firestore.documents import Records
from onceward.stores.firestore.latest_documents import LatestDocuments
from onceward.stores.firestore.table import FirestoreTable
from tests.conformance.on_firestore import OnFirestore

TRIES = 20
"""Some bugs show only in a race, which does not always happen; most show at the first try."""

Bug = Callable[[pytest.MonkeyPatch], None]


def _unconditional(kind: str) -> Bug:
    """Writes of this kind without a precondition."""

    def bug(patch: pytest.MonkeyPatch) -> None:
        sound = FirestoreCalls.build_write

        def writing(self: FirestoreCalls, *args: Any, **kwargs: Any) -> Any:
            write = sound(self, *args, **kwargs)
            if write.current_document.WhichOneof("condition_type") == kind:
                write.ClearField("current_document")
            return write

        patch.setattr(FirestoreCalls, "build_write", writing)

    return bug


def _unasked_deletes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FirestoreCalls, "build_delete", lambda self, where, name, _: Write(delete=self.path(where, name)))


def _read_differently(**wrong: Any) -> Bug:
    """Records that are read with other values than were stored."""

    def bug(patch: pytest.MonkeyPatch) -> None:
        sound = Records.record
        patch.setattr(Records, "record", lambda *args: replace(sound(*args), **wrong))

    return bug


def _unwritten(field: str) -> Bug:
    def bug(patch: pytest.MonkeyPatch) -> None:
        sound = Records.changes

        def changes(self: Records, *args: Any) -> Any:
            path = self.paths[field]
            return {where: value for where, value in sound(self, *args).items() if where != path}

        patch.setattr(Records, "changes", changes)

    return bug


def _attribute(owner: Any, name: str, wrong: Any) -> Bug:
    return lambda patch: patch.setattr(owner, name, wrong)


def _encoder(field: str, wrong: Callable[[Any], Any]) -> Bug:
    return lambda patch: patch.setitem(documents._ENCODERS, field, wrong)


def _no_audit(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(table, "audit_entries", lambda *_: [])


def _marks_never_expire(patch: pytest.MonkeyPatch) -> None:
    sound = LatestDocuments.content
    patch.setattr(LatestDocuments, "content", lambda self, fields: (sound(self, fields)[0], 1 << 62))


def _states_never_expire(patch: pytest.MonkeyPatch) -> None:
    sound = LatestDocuments.state
    patch.setattr(LatestDocuments, "state", lambda self, fields: replace(sound(self, fields), expires_at=None))


def _last_wins(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(latest, "decide", lambda deliveries, _, *rest: rules.decide(deliveries, {}, *rest))


def _remembers_all(patch: pytest.MonkeyPatch) -> None:
    """A cached claim is never checked again, and writes based on it have no precondition."""
    _unconditional("update_time")(patch)
    patch.setattr(FirestoreTable, "_from_cache", lambda self, job: self._cache._documents.get(job.id))


BUGS: dict[str, tuple[Bug, str]] = {
    "a claim overwrites another claim": (
        _unconditional("exists"), "of_many_claimants_of_one_key_exactly_one_acquires",
    ),
    "a takeover overwrites any record": (
        _unconditional("update_time"), "of_many_takeovers_of_an_expired_lease_exactly_one_wins",
    ),
    "a settlement trusts the cache": (
        _remembers_all, "a_replaced_owner_changes_nothing_while_the_new_one_works",
    ),
    "a purge deletes a record that was claimed again": (_unasked_deletes, "a_purge_during_claims_grants_no_key_twice"),
    "documents are named by readable keys": (
        _attribute(table, "name_of", lambda _id, _scope, key: key), "only_the_id_identifies_a_record",
    ),
    "times in milliseconds": (
        _attribute(values, "timestamp", lambda value: values.Timestamp(seconds=value // 10**6)),
        "large_numbers_stay_exact",
    ),
    "an empty result is stored as none": (
        _encoder("result", lambda data: documents._bytes(data or None)), "every_result_is_replayed_unchanged",
    ),
    "a missing lease counts as expired": (
        _encoder("lease_until", lambda value: values.time(value or 0)), "a_claim_without_a_lease_never_expires",
    ),
    "a newer record is read as ours": (
        _read_differently(min_reader=1), "a_record_of_a_newer_version_is_not_changed",
    ),
    "the nonce is not written": (_unwritten("nonce"), "a_claim_repeated_with_its_nonce_gives_the_same_grant"),
    "the payload is not written": (_unwritten("fingerprint"), "another_payload_is_a_mismatch_in_every_state"),
    "the token is forgotten": (_read_differently(token=0), "tokens_grow_while_the_clock_is_set_back_by_days"),
    "nothing ever expires": (
        _attribute(documents, "expiry_of", lambda _: None), "purge_deletes_all_expired_records_in_batches",
    ),
    "no audit entry is written": (_no_audit, "a_signed_change_is_in_the_audit_trail"),
    "the trail never expires": (
        _attribute(trail, "AUDIT_RETENTION", 1 << 60), "the_trail_expires_after_its_retention",
    ),
    "age does not matter": (
        lambda patch: patch.setattr(upkeep, "_matches", lambda *_: True),
        "filters_choose_by_state_scope_key_and_age",
    ),
    "the last event wins": (_last_wins, "a_newer_event_is_applied_and_an_older_one_is_stale"),
    "states overwrite any state": (
        _unconditional("update_time"), "of_concurrent_events_the_newest_wins",
    ),
    "marks never expire": (_marks_never_expire, "marks_expire_and_are_deleted_in_batches"),
    "tombstones never expire": (_states_never_expire, "the_tombstone_of_a_deleted_entity_expires"),
}  # fmt: skip


@pytest.mark.rival(1, 2, 5, 18, 20, 22)
@pytest.mark.fault("F36", "F40", "F41", "F42", "F66")
@pytest.mark.parametrize("what", BUGS)
def test_the_kit_catches(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bug, caught_by = BUGS[what]
    bug(monkeypatch)
    kit = OnFirestore()
    with pytest.raises((AssertionError, OncewardError)) as caught:
        for number in range(TRIES):
            (directory := tmp_path / str(number)).mkdir()
            getattr(kit, f"test_{caught_by}")("blocking", directory)
    assert str(caught.value), "a check must say what is wrong"

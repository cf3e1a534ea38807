"""Stores on Firestore that are wrong in one place, each caught by the check that is named beside it."""

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
"""Some show only in a race, which may go well; most at the first try."""

Slip = Callable[[pytest.MonkeyPatch], None]


def _unconditional(kind: str) -> Slip:
    """Writes of this kind ask for no version."""

    def slip(patch: pytest.MonkeyPatch) -> None:
        sound = FirestoreCalls.build_write

        def writing(self: FirestoreCalls, *args: Any, **kwargs: Any) -> Any:
            write = sound(self, *args, **kwargs)
            if write.current_document.WhichOneof("condition_type") == kind:
                write.ClearField("current_document")
            return write

        patch.setattr(FirestoreCalls, "build_write", writing)

    return slip


def _unasked_deletes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FirestoreCalls, "build_delete", lambda self, where, name, _: Write(delete=self.path(where, name)))


def _read_differently(**wrong: Any) -> Slip:
    """Records come back with other fields than they have."""

    def slip(patch: pytest.MonkeyPatch) -> None:
        sound = Records.record
        patch.setattr(Records, "record", lambda *args: replace(sound(*args), **wrong))

    return slip


def _unwritten(field: str) -> Slip:
    def slip(patch: pytest.MonkeyPatch) -> None:
        sound = Records.changes

        def changes(self: Records, *args: Any) -> Any:
            path = self.paths[field]
            return {where: value for where, value in sound(self, *args).items() if where != path}

        patch.setattr(Records, "changes", changes)

    return slip


def _attribute(owner: Any, name: str, wrong: Any) -> Slip:
    return lambda patch: patch.setattr(owner, name, wrong)


def _encoder(field: str, wrong: Callable[[Any], Any]) -> Slip:
    return lambda patch: patch.setitem(documents._ENCODERS, field, wrong)


def _no_audit(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(table, "audit_entries", lambda *_: [])


def _marks_for_ever(patch: pytest.MonkeyPatch) -> None:
    sound = LatestDocuments.content
    patch.setattr(LatestDocuments, "content", lambda self, fields: (sound(self, fields)[0], 1 << 62))


def _states_for_ever(patch: pytest.MonkeyPatch) -> None:
    sound = LatestDocuments.state
    patch.setattr(LatestDocuments, "state", lambda self, fields: replace(sound(self, fields), expires_at=None))


def _last_wins(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(latest, "decide", lambda deliveries, _, *rest: rules.decide(deliveries, {}, *rest))


def _remembers_all(patch: pytest.MonkeyPatch) -> None:
    """A claim that was seen once is believed for ever, and what is written on its word asks for no version."""
    _unconditional("update_time")(patch)
    patch.setattr(FirestoreTable, "_from_cache", lambda self, job: self._cache._documents.get(job.id))


SLIPS: dict[str, tuple[Slip, str]] = {
    "a claim that is written over another": (
        _unconditional("exists"), "of_many_claimants_of_one_key_exactly_one_acquires",
    ),
    "a take-over of whatever is there": (
        _unconditional("update_time"), "of_many_takeovers_of_an_expired_lease_exactly_one_wins",
    ),
    "a settlement by what was remembered": (
        _remembers_all, "a_replaced_owner_changes_nothing_while_the_new_one_works",
    ),
    "a purge of what came back": (_unasked_deletes, "a_purge_during_claims_grants_no_key_twice"),
    "documents by readable keys": (
        _attribute(table, "name_of", lambda _id, _scope, key: key), "only_the_id_identifies_a_record",
    ),
    "times in milliseconds": (
        _attribute(values, "timestamp", lambda value: values.Timestamp(seconds=value // 10**6)),
        "large_numbers_stay_exact",
    ),
    "an empty result is no result": (
        _encoder("result", lambda data: documents._bytes(data or None)), "every_result_is_replayed_unchanged",
    ),
    "a missing lease is over": (
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
    "nobody signs": (_no_audit, "a_signed_change_is_in_the_audit_trail"),
    "the trail is kept for ever": (
        _attribute(trail, "AUDIT_RETENTION", 1 << 60), "the_trail_expires_after_its_retention",
    ),
    "age does not matter": (
        lambda patch: patch.setattr(upkeep.FirestoreMaintenance, "_conditions", lambda *_: []),
        "filters_choose_by_state_scope_key_and_age",
    ),
    "the last event wins": (_last_wins, "a_newer_event_is_applied_and_an_older_one_is_stale"),
    "states over whatever is there": (
        _unconditional("update_time"), "of_concurrent_events_the_newest_wins",
    ),
    "marks for ever": (_marks_for_ever, "marks_expire_and_are_deleted_in_batches"),
    "what is left of the deleted, for ever": (_states_for_ever, "the_tombstone_of_a_deleted_entity_expires"),
}  # fmt: skip


@pytest.mark.rival(1, 2, 5, 18, 20, 22)
@pytest.mark.fault("F36", "F40", "F41", "F42", "F66")
@pytest.mark.parametrize("what", SLIPS)
def test_the_kit_catches(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slip, caught_by = SLIPS[what]
    slip(monkeypatch)
    kit = OnFirestore()
    with pytest.raises((AssertionError, OncewardError)) as caught:
        for number in range(TRIES):
            (place := tmp_path / str(number)).mkdir()
            getattr(kit, f"test_{caught_by}")("blocking", place)
    assert str(caught.value), "a check must say what is wrong"

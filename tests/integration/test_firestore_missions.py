"""Missions A and E on Firestore: the same tests as on every store, and how the documents look in the console."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from google.cloud import firestore

from examples.fleet.events import document_id as service_id
from onceward import AlreadyDone, AlreadyRunning, ConfigurationError, Once, content_key
from onceward.errors import ResultNotStored, VersionSkew
from onceward.keys.key import make_key
from onceward.latest import Ordering
from onceward.runtime.threads import run
from onceward.stores.firestore import FirestoreStore, Layout
from onceward.testing import FakeClock
from tests.clients import Backend
from tests.firestore_backends import (
    LOCKS,
    PROJECT,
    SERVICES,
    SERVICES_URL,
    document,
    documents,
    firestore_client,
    named,
)
from tests.integration.test_documents import (
    LOCK,
    test_a_completed_document_is_skipped,
    test_a_failed_document_may_run_again_and_remembers_when_it_first_came,
    test_a_pending_document_is_skipped_inside_the_lease_and_taken_over_after_it,
    test_a_renamed_file_is_the_same_file_and_is_processed_once,
    test_one_of_ten_concurrent_workers_acquires_the_document,
)
from tests.integration.test_state import (
    test_a_deleted_entity_stays_deleted_until_something_newer,
    test_a_lost_reply_is_repaired_by_delivering_again,
    test_an_event_of_the_future_is_parked_until_its_time_comes,
    test_every_event_has_an_outcome_with_a_reason,
    test_messages_are_known_for_a_week_and_purged_after_it,
    test_outcomes_are_counted_and_emitted_as_events,
)
from tests.integration.test_state_convergence import (
    test_all_permutations_of_the_hardest_history_end_in_the_same_state,
    test_threads_that_deliver_one_history_end_in_its_state,
)
from tests.integration.trucks import BlockingState, trucks
from tests.servers.firestore import shared

__all__ = [
    "test_a_completed_document_is_skipped",
    "test_a_deleted_entity_stays_deleted_until_something_newer",
    "test_a_failed_document_may_run_again_and_remembers_when_it_first_came",
    "test_a_lost_reply_is_repaired_by_delivering_again",
    "test_a_pending_document_is_skipped_inside_the_lease_and_taken_over_after_it",
    "test_a_renamed_file_is_the_same_file_and_is_processed_once",
    "test_all_permutations_of_the_hardest_history_end_in_the_same_state",
    "test_an_event_of_the_future_is_parked_until_its_time_comes",
    "test_every_event_has_an_outcome_with_a_reason",
    "test_messages_are_known_for_a_week_and_purged_after_it",
    "test_one_of_ten_concurrent_workers_acquires_the_document",
    "test_outcomes_are_counted_and_emitted_as_events",
    "test_threads_that_deliver_one_history_end_in_its_state",
    "trucks",
]


@pytest.fixture
def backend(tmp_path: Path, clock: FakeClock) -> Backend:
    return Backend("firestore", tmp_path, clock)


@pytest.fixture
def locks(tmp_path: Path) -> Iterator[Once]:
    """A client on the server's own clock."""
    with Once(documents(tmp_path), window="forever") as once:
        yield once


# ── A2: the record in the console ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mission("A2")
def test_the_lock_of_a_document_has_the_layout_of_the_mission(locks: Once, tmp_path: Path) -> None:
    collection = named(tmp_path)
    with locks.claim(LOCK, note={"gcs_source_path": "gs://in/a.pdf"}, lease="600s") as claim:
        pending = document(collection, LOCK)
        assert pending is not None, "the document is named by the hash"
        claim.annotate(gcs_output_path="gs://out/ID_Company_Date.pdf")
        claim.complete({"rows": 3})
    assert pending.pop("onceward").keys() >= {"token", "nonce", "cycle"}, (
        "what the lock of the mission lacks, in one field"
    )
    pending.pop("expire_at")
    created, expires = pending.pop("created_at"), pending.pop("lock_expires_at")
    assert expires - pending.pop("updated_at") == expires - created == dt.timedelta(seconds=600)
    assert pending == {
        "hash": LOCK,
        "status": "PENDING",
        "gcs_source_path": "gs://in/a.pdf",
        "gcs_output_path": None,
        "error_message": None,
    }
    done = document(collection, LOCK)
    assert done is not None
    assert (done["status"], done["lock_expires_at"], done["created_at"]) == ("COMPLETED", None, created)
    assert done["gcs_output_path"] == "gs://out/ID_Company_Date.pdf"


@pytest.mark.mission("A2", "A5")
def test_a_failure_is_shown_with_its_message_and_is_gone_after_the_next_attempt(locks: Once, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no text"), locks.claim(LOCK):
        raise ValueError("no text in this file")
    failed = document(named(tmp_path), LOCK)
    assert failed is not None
    assert (failed["status"], failed["error_message"]) == ("FAILED", "no text in this file")
    with locks.claim(LOCK) as claim:
        claim.complete()
    done = document(named(tmp_path), LOCK)
    assert done is not None
    assert (done["status"], done["error_message"]) == ("COMPLETED", None)


@pytest.mark.mission("A2")
def test_what_others_keep_in_the_document_stays_there(locks: Once, tmp_path: Path) -> None:
    """As the mission's own code does: it writes to the document while it holds the lock."""
    with locks.claim(LOCK) as claim:
        firestore_client().collection(named(tmp_path)).document(LOCK).update(
            {"gcs_output_path": "gs://out/a.pdf", "pages": 7}
        )
        claim.complete()
    done = document(named(tmp_path), LOCK)
    assert done is not None
    assert (done["status"], done["gcs_output_path"], done["pages"]) == ("COMPLETED", "gs://out/a.pdf", 7)
    entry = locks.read(LOCK)
    assert entry is not None
    assert entry.note == {"gcs_output_path": "gs://out/a.pdf"}


@pytest.mark.mission("A2", "A3")
@pytest.mark.fault("F42")
def test_locks_that_were_written_by_hand_before_are_taken_over_as_they_are(locks: Once, tmp_path: Path) -> None:
    now = dt.datetime.now(dt.UTC)
    born = now - dt.timedelta(days=3)

    def lock(name: str, status: str, **more: Any) -> str:
        key = content_key(name.encode())
        written = {"hash": key, "status": status, "created_at": born, "updated_at": born, **more}
        firestore_client().collection(named(tmp_path)).document(key).set(written)
        return key

    hour = dt.timedelta(hours=1)
    done = lock("done", "COMPLETED", gcs_output_path="gs://out/a.pdf")
    live = lock("live", "PENDING", lock_expires_at=now + hour)
    timeless = lock("timeless", "PENDING")
    lapsed = lock("lapsed", "PENDING", lock_expires_at=now - hour, gcs_source_path="gs://in/a.pdf")
    failed = lock("failed", "FAILED", error_message="429")
    with pytest.raises((AlreadyDone, ResultNotStored)), locks.claim(done):
        pytest.fail("processed again")
    for key in (live, timeless):
        with pytest.raises(AlreadyRunning), locks.claim(key, on_running="raise"):
            pytest.fail("ran while the owner was running")
    for key in (lapsed, failed):
        with locks.claim(key) as claim:
            claim.complete("now")
        entry = locks.read(key)
        assert entry is not None
        assert (entry.state, entry.created_at) == ("COMPLETED", born.replace(microsecond=born.microsecond))
        assert entry.note == ({"gcs_source_path": "gs://in/a.pdf"} if key == lapsed else {})


# ── which document ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.fault("F1", "F2", "F9")
def test_every_other_key_is_its_hash(locks: Once, tmp_path: Path) -> None:
    keys = ["a/b", "__x__", ".", "k" * 5_000, "NUL \0", "sha256:short", ("sha256", "ab"), LOCK.upper()]
    for key in keys:
        assert locks.outcome(key, str, "x").executed
        assert locks.outcome(key, str, "x").replayed
    names = {one.id for one in firestore_client().collection(named(tmp_path)).stream()}
    assert names == {locks.key(key).id.hex() for key in keys}


def test_two_operations_on_the_same_content_want_two_collections(locks: Once) -> None:
    """One document has room for one record: the second operation is refused, and never gets the other's result."""
    assert locks.outcome(LOCK, str, "x").executed
    with pytest.raises(ConfigurationError, match="a separate collection"), locks.claim(LOCK, name="thumbnails"):
        pytest.fail("ran under another operation's record")


def test_tenants_with_the_same_content_do_not_meet(tmp_path: Path) -> None:
    for tenant in ("acme", "globex"):
        with Once(documents(tmp_path), tenant=tenant) as once:
            assert once.outcome(LOCK, str, tenant).executed
            entry = once.read(LOCK)
            assert entry is not None
    assert document(named(tmp_path), LOCK) is None


@pytest.mark.fault("F22")
def test_a_result_that_a_document_has_no_room_for_is_not_kept_and_the_work_is_done(locks: Once) -> None:
    runs: list[int] = []

    def large() -> bytes:
        runs.append(1)
        return os.urandom(900_000)

    assert locks.outcome("large", large).executed
    with pytest.raises(ResultNotStored, match="has room for"):
        locks.run("large", large)
    assert runs == [1]
    assert locks.counts["result_not_stored"] == 1
    assert locks.run("nearly", os.urandom, 700_000) == locks.run("nearly", os.urandom, 700_000)


# ── expiry ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mission("E7")
def test_the_field_for_the_expiry_policy_is_set_on_records_that_may_be_deleted(
    tmp_path: Path, clock: FakeClock
) -> None:
    with Once(documents(tmp_path, clock=clock)) as once:
        once.run("a day", str, "x")
        once.using(window="forever").run("forever key", str, "x")
        with pytest.raises(ValueError, match="no"), once.using(after_crash="park").claim("parked"):
            raise ValueError("no")
        ends = {one.to_dict()["hash"]: one.to_dict()["expire_at"] for one in _all(named(tmp_path))}
        now = dt.datetime.fromtimestamp(clock.now() / 1e6, dt.UTC)
        assert ends == {"a day": now + dt.timedelta(days=1), "forever key": None, "parked": None}
        clock.advance("25h")
        assert once.purge() == 1
        assert {one.to_dict()["hash"] for one in _all(named(tmp_path))} == {"forever key", "parked"}


# ── E2: the state in the console ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mission("E2", "E4", "E5", "E7")
def test_states_and_marks_have_the_layout_of_the_mission(tmp_path: Path) -> None:
    shared()
    dedupe, services = named(tmp_path, "ops_dedupe"), named(tmp_path, "ops_services")
    where = f"firestore://{PROJECT}/{named(tmp_path, 'ops')}{SERVICES_URL}&marks={dedupe}&states={services}"
    with Once(where) as once:
        state = once.state("services")
        start = dt.datetime(2026, 3, 1, 8, 5, tzinfo=dt.UTC)

        def heartbeat(status: str, minute: int, message: str, **more: Any) -> str:
            at = start.replace(minute=minute)
            value = {
                "serviceId": "api",
                "env": "prod",
                "status": status,
                "lastHeartbeatAt": at,
                "version": "1.2",
                "updatedAt": at,
                "source": {"topic": "ops", "messageId": message, "publishedAt": at},
                **more,
            }
            outcome = state.apply(service_id("prod", "api"), Ordering(at, None, at, message), value, event_id=message)
            return outcome.reason

        assert heartbeat("up", 5, "m1", region="eu") == "applied"
        assert heartbeat("down", 6, "m2") == "applied"
        assert heartbeat("up", 4, "m0") == "stale_event_ignored"
        current: Any = state.get(service_id("prod", "api"))
        assert current["status"] == "down"
    found = document(services, "prod__api")
    assert found is not None
    found.pop("onceward")
    at = start.replace(minute=6)
    assert found == {
        "serviceId": "api", "env": "prod", "status": "down", "lastHeartbeatAt": at, "version": "1.2",
        "updatedAt": at, "source": {"topic": "ops", "messageId": "m2", "publishedAt": at}, "expireAt": None,
    }, "and no region, which the last event does not have"  # fmt: skip
    marks = [one.to_dict() for one in _all(dedupe)]
    assert sorted(one["messageId"] for one in marks) == ["m0", "m0", "m1", "m1", "m2", "m2"]
    assert {one["expireAt"] - one["createdAt"] for one in marks} == {dt.timedelta(days=7)}
    assert all(one.keys() == {"messageId", "createdAt", "expireAt", "onceward"} for one in marks)


@pytest.mark.mission("E2")
def test_an_entity_called_like_the_hash_of_another_is_not_taken_for_it(tmp_path: Path) -> None:
    shared()
    with Once(f"firestore://{PROJECT}/{named(tmp_path, 'ops')}{SERVICES_URL}") as once:
        state = once.state("services")
        slashed, at = "prod/api", Ordering(dt.datetime(2026, 3, 1, tzinfo=dt.UTC))
        namesake = make_key(state.scope, slashed).id.hex()
        assert state.apply(namesake, at, "another").reason == "applied"
        assert state.get(slashed) is None
        assert state.apply(slashed, at, "own").reason == "applied"
        assert (state.get(slashed), state.get(namesake)) == ("own", "another")


@pytest.mark.fault("F67")
def test_a_state_that_a_newer_version_wrote_is_left_alone(tmp_path: Path) -> None:
    shared()
    with Once(f"firestore://{PROJECT}/{named(tmp_path, 'ops')}") as once:
        state = once.state("services")
        assert state.apply("api", Ordering(dt.datetime(2026, 3, 1, tzinfo=dt.UTC)), "up").applied
        [one] = _all(f"{named(tmp_path, 'ops')}_states")
        one.reference.update({"onceward.min_reader": 99, "onceward.order": "as it is written then"})
        planted = one.reference.get().to_dict()
        with pytest.raises(VersionSkew):
            state.apply("api", Ordering(dt.datetime(2026, 3, 2, tzinfo=dt.UTC)), "down")
        assert one.reference.get().to_dict() == planted


@pytest.mark.mission("E2")
def test_a_state_called_after_its_entity_is_found_in_a_transaction_too(tmp_path: Path) -> None:
    shared()
    where = f"firestore://{PROJECT}/{named(tmp_path, 'ops')}{SERVICES_URL}"
    entities = ("prod__api", "prod/api", "unknown")
    with Once(where) as once:
        state = once.state("services")
        for entity in entities[:2]:
            state.apply(entity, Ordering(dt.datetime(2026, 3, 1, tzinfo=dt.UTC)), entity)

        @firestore.transactional
        def look(transaction: Any) -> list[str | None]:
            joined = cast("FirestoreStore", once.store).join(transaction, once.engine.runtime)
            ids = [make_key(state.scope, entity).id for entity in entities]
            found = run(joined.read_latest(ids, timeout=30))
            return [None if one is None else one.entity for one in found]

        assert look(firestore_client().transaction()) == ["prod__api", "prod/api", None]


@pytest.mark.fault("F66", "F67")
def test_documents_that_no_purge_may_delete_do_not_block_it(tmp_path: Path, clock: FakeClock) -> None:
    """Others' documents, and those of a newer version, may have expired as well."""
    old = dt.datetime(2001, 1, 1, tzinfo=dt.UTC)
    with Once(FirestoreStore(f"firestore://{PROJECT}/{named(tmp_path)}", clock=clock), window="1h") as once:
        for number in range(3):
            theirs = {"state": "COMPLETED", "expire_at": old}
            firestore_client().collection(named(tmp_path)).document(f"theirs {number}").set(theirs)
            once.run(f"ours {number}", lambda: None)
        clock.advance(dt.timedelta(days=2))
        assert [once.purge(2), once.purge(2), once.purge(2)] == [2, 1, 0]
    assert {one.id for one in _all(named(tmp_path))} == {f"theirs {number}" for number in range(3)}


def test_a_layout_in_the_url_is_the_layout() -> None:
    fields = "key:hash,state:status,created_at,updated_at,lease_until:lock_expires_at,error:error_message"
    url = f"firestore://p/c?fields={fields}&notes=gcs_source_path,gcs_output_path"
    assert FirestoreStore(url)._address.layout == LOCKS
    assert FirestoreStore(f"firestore://p/c{SERVICES_URL}")._address.layout == SERVICES


@pytest.mark.parametrize(
    "wrong",
    [
        "firestore://p", "firestore:///c", "firestore://p/c?color=red", "firestore://p/c?fields=color:red",
        "firestore://p/c?fields=state:__x__", "firestore://p/c?fields=state:key,key:key", "firestore://p/a/b",
        "firestore://p/c?marks=c", "firestore://p/c?values=perhaps", "firestore://p/c?expiry=state",
        "firestore://p/c?fields=state:onceward", "firestore://p/c?fields=id:id",
    ],
)  # fmt: skip
def test_an_invalid_url_is_refused(wrong: str) -> None:
    with pytest.raises(ConfigurationError):
        FirestoreStore(wrong)


def test_a_firestore_client_of_the_user_provides_project_and_credentials(tmp_path: Path) -> None:
    with Once(FirestoreStore(firestore_client(), named(tmp_path), layout=Layout())) as once:
        assert once.outcome("k", str, "x").executed
    assert len(list(_all(named(tmp_path)))) == 1


def _all(collection: str) -> Any:
    return firestore_client().collection(collection).stream()


__all__ += ["BlockingState"]

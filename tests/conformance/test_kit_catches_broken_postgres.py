"""The statements of the PostgreSQL store, each with one wrong clause: the kit notices every one of them."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from onceward.errors import StoreError
from onceward.protocol.ports import Clock
from onceward.stores.postgres import PostgresStore
from onceward.stores.postgres.statements import Statement, Statements, statements
from onceward.stores.postgres.table import PostgresTable
from onceward.testing.conformance import StoreConformance
from tests.conformance.test_postgres import Hooks, InBatches
from tests.raw_postgres import use_table

WITHOUT = ""

WRONG: dict[str, tuple[str, str, str, str]] = {
    "a claim that overwrites another claim": (
        "claim",
        "ON CONFLICT (id) DO NOTHING",
        "ON CONFLICT (id) DO UPDATE SET nonce = excluded.nonce, token = excluded.token",
        "of_many_claimants_of_one_key_exactly_one_acquires",
    ),
    "a single claim that overwrites another claim": (
        "claim_one",
        "ON CONFLICT (id) DO NOTHING",
        "ON CONFLICT (id) DO UPDATE SET nonce = excluded.nonce, token = excluded.token",
        "of_many_claimants_of_one_key_exactly_one_acquires",
    ),
    "a single claim whose token is not the time": (
        "claim_one",
        "now, $5::bytea, now,",
        "1, $5::bytea, now,",
        "answers_match_the_database",
    ),
    "a claim whose token is not the time": (
        "claim",
        "now, nonce, now, now + lease",
        "1, nonce, now, now + lease",
        "answers_match_the_database",
    ),
    "a claim that loses the fingerprint": (
        "claim",
        "nullif(fingerprint, '')",
        "nullif(fingerprint, fingerprint)",
        "another_payload_is_a_mismatch_in_every_state",
    ),
    "a completion that ignores the nonce": (
        "complete",
        "AND mine.nonce = asked.nonce",
        WITHOUT,
        "a_wrong_token_or_nonce_is_not_the_owner",
    ),
    "a completion that ignores the token": (
        "complete",
        "AND mine.token = asked.token",
        WITHOUT,
        "a_wrong_token_or_nonce_is_not_the_owner",
    ),
    "a completion of a completed record": (
        "complete",
        "AND mine.state IS NOT DISTINCT FROM 'PENDING'",
        "AND (mine.state = 'PENDING' OR mine.state IS NULL)",
        "a_completion_needs_the_owner_and_the_same_result",
    ),
    "a completion of a released record": (
        "complete",
        "AND mine.released IS NOT TRUE",
        WITHOUT,
        "a_completion_needs_the_owner_and_the_same_result",
    ),
    "a completion whose window ends immediately": (
        "complete",
        "asked.until, now + asked.lasting",
        "asked.until, now",
        "every_result_is_replayed_unchanged",
    ),
    "a completion of a newer version's record": (
        "complete",
        "AND coalesce(mine.min_reader, 1) <= 1",
        WITHOUT,
        "a_record_of_a_newer_version_is_not_changed",
    ),
    "a renewal that ignores the owner": (
        "renew",
        "AND token = asked.token AND nonce = asked.nonce",
        WITHOUT,
        "a_replaced_owner_changes_nothing_while_the_new_one_works",
    ),
    "a renewal that adds a lease": (
        "renew",
        "CASE WHEN mine.lease_until IS NOT NULL THEN now + asked.lease END",
        "now + asked.lease",
        "a_claim_without_a_lease_never_expires",
    ),
    "a write that overwrites concurrent changes": (
        "write",
        "= given.version",
        "IS NOT NULL",
        "of_many_takeovers_of_an_expired_lease_exactly_one_wins",
    ),
    "a write that loses the result": (
        "write",
        "WHEN given.same_result THEN mine.result ELSE",
        "WHEN false THEN mine.result ELSE",
        "a_sliding_window_moves_with_its_replays",
    ),
    "a purge of a record that was claimed again": (
        "delete",
        "AND xmin = given.version",
        WITHOUT,
        "a_purge_during_claims_grants_no_key_twice",
    ),
    "a purge that finds nothing": (
        "purgeable",
        "$6::bigint AND old.now",
        "$6::bigint AND 0",
        "purge_deletes_all_expired_records_in_batches",
    ),
    "a state that overwrites a newer one": (
        "latest_upsert",
        "(mine.id, mine.ordering) IN (SELECT id, met FROM given WHERE met IS NOT NULL)",
        "true",
        "of_concurrent_events_the_newest_wins",
    ),
    "a restored entity that still expires": (
        "latest_update",
        "THEN $6::bigint END",
        "THEN $6::bigint ELSE mine.expires_at END",
        "the_tombstone_of_a_deleted_entity_expires",
    ),
    "a mark that is not renewed after it has expired": (
        "latest_insert_marks",
        "expires_at = excluded.expires_at",
        "expires_at = mine.expires_at",
        "marks_expire_and_are_deleted_in_batches",
    ),
    "a lookup that returns expired marks": (
        "latest_lookup",
        "mark.expires_at > clock.now",
        "true",
        "marks_expire_and_are_deleted_in_batches",
    ),
    "a lookup that returns expired tombstones": (
        "latest_lookup",
        "WHEN state.expires_at <= clock.now THEN 2",
        WITHOUT,
        "the_tombstone_of_a_deleted_entity_expires",
    ),
    "a read that returns an expired tombstone": (
        "latest",
        "state.expires_at IS NULL OR",
        "true OR",
        "the_tombstone_of_a_deleted_entity_expires",
    ),
    "a list of all scopes": (
        "latest_entities",
        "AND scope = $1::text",
        "AND ($1::text IS NULL OR true)",
        "entities_with_a_value_are_listed_in_pages",
    ),
    "a list with deleted entities": (
        "latest_entities",
        "AND value IS NOT NULL",
        WITHOUT,
        "entities_with_a_value_are_listed_in_pages",
    ),
    "a list of expired marks": (
        "latest_marks",
        "WHERE mark.expires_at >",
        "WHERE true OR mark.expires_at >",
        "marks_are_listed_until_they_expire",
    ),
    "an expiry that deletes too many": (
        "latest_expire",
        "LIMIT $2::bigint",
        "LIMIT $2::bigint + 5",
        "marks_expire_and_are_deleted_in_batches",
    ),
}


class Broken(Hooks, StoreConformance):
    """The store with one wrong statement."""

    wrong: ClassVar[tuple[str, str, str, str]]
    examples = 10

    def open(self, directory: Path, clock: Clock) -> PostgresStore:
        store = super().open(directory, clock)
        kind = PostgresTable if self.wrong[0] == "claim_one" else InBatches
        use_table(store, kind, self.with_bug)
        return store

    def with_bug(self, sound: Statements) -> Statements:
        name, clause, instead, _ = self.wrong
        with_bug = Statements(sound.prefix.strip('".'))
        text = getattr(with_bug, name).text
        setattr(with_bug, name, Statement(text.replace(clause, instead)))
        return with_bug


ROUNDS = 5
"""Some bugs show only if two calls overlap. On a busy machine, they do not overlap in every round."""


@pytest.mark.parametrize("what", WRONG)
def test_the_replaced_clause_is_still_in_the_statement(what: str) -> None:
    name, clause, _, _ = WRONG[what]
    assert clause in getattr(statements(""), name).text, f"{name}.sql no longer contains {clause!r}"


@pytest.mark.usefixtures("postgres")
@pytest.mark.rival(1, 18, 20, 22)
@pytest.mark.fault("F36", "F40", "F41", "F42", "F66")
@pytest.mark.parametrize("mode", ["blocking", "asyncio"])
@pytest.mark.parametrize("what", WRONG)
def test_the_kit_catches(what: str, mode: str, tmp_path: Path) -> None:
    kit = type("Kit", (Broken,), {"wrong": WRONG[what]})()
    check = getattr(kit, f"test_{WRONG[what][-1]}")
    with pytest.raises((AssertionError, StoreError)):
        for turn in range(ROUNDS):
            place = tmp_path / str(turn)
            place.mkdir()
            check(mode=mode, tmp_path=place)

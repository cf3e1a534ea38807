"""Every check of the kit must fail for a store that is broken in the way the check is about."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import Phase, settings

from onceward.protocol.ports import Clock
from onceward.stores.memory.store import MemoryStore
from tests.conformance import (
    broken,
    broken_counts,
    broken_key_history,
    broken_latest,
    broken_listings,
    broken_lookups,
    broken_trails,
    broken_ways,
    broken_windows,
)
from tests.conformance.in_memory import InMemory

CAUGHT_BY: dict[type[MemoryStore], tuple[str, ...]] = {
    broken.BlindTakeOver: (
        "of_many_claimants_of_one_key_exactly_one_acquires",
        "many_claimants_may_share_one_store",
        "a_claim_protects_an_unsafe_counter",
        "another_nonce_is_another_claim",
        "a_repeated_claim_of_a_replaced_owner_is_refused",
        "random_histories_agree_with_the_state_table",
    ),
    broken.MissingLeaseIsFree: ("a_claim_without_a_lease_never_expires", "random_histories_agree_with_the_state_table"),
    broken.CompletesUnclaimedKeys: ("a_key_that_was_never_claimed_has_no_owner",),
    broken.CompletesWithoutOwnerCheck: (
        "a_replaced_owner_changes_nothing_while_the_new_one_works",
        "a_replaced_owner_changes_nothing_after_the_new_one_settled",
        "random_histories_agree_with_the_state_table",
    ),
    broken.RenewsWithoutOwnerCheck: ("a_replaced_owner_changes_nothing_while_the_new_one_works",),
    broken.IgnoresTheNonceOfOwners: (
        "a_wrong_token_or_nonce_is_not_the_owner",
        "owner_requests_in_every_row_agree_with_the_state_table",
    ),
    broken.RefusesLateOwners: ("a_late_owner_that_was_not_replaced_may_still_settle",),
    broken.FailureDeletes: (
        "a_failure_keeps_the_record_and_its_attempts",
        "random_histories_agree_with_the_state_table",
    ),
    broken.ReleaseDeletes: (
        "tokens_grow_while_the_clock_is_set_back_by_days",
        "other_repeated_settlements_succeed_and_change_nothing",
    ),
    broken.LosesFalsyResults: ("every_result_is_replayed_unchanged", "random_histories_agree_with_the_state_table"),
    broken.ForgetsThatNothingWasKept: ("a_result_that_was_not_stored_differs_from_none",),
    broken.LosesThePayloadOnCompletion: (
        "another_payload_is_a_mismatch_in_every_state",
        "claims_in_every_row_agree_with_the_state_table",
    ),
    broken.SkipsThePayloadOnTakeOver: ("another_payload_is_a_mismatch_in_every_state",),
    broken.ReplaysExtendNothing: ("a_sliding_window_moves_with_its_replays",),
    broken_ways.LacksCapability: ("a_store_declares_every_capability",),
    broken.AcknowledgesWithoutWriting: ("every_result_is_replayed_unchanged",),
    broken.LosesTheNoteOnCompletion: ("a_completion_keeps_a_note_that_its_owner_does_not_know",),
    broken.CompletesAgain: ("a_completion_needs_the_owner_and_the_same_result",),
    broken.KeepsAnotherEnd: ("a_completion_returns_the_stored_end_of_its_window",),
    broken.ReplaysWrite: ("calls_without_effect_write_nothing",),
    broken.RegrantIgnoresTheNonce: (
        "a_claim_repeated_with_its_nonce_gives_the_same_grant",
        "a_repeated_claim_renews_its_expired_lease",
        "a_repeated_claim_after_its_settlement_never_runs_again",
        "concurrent_repetitions_of_a_claim_are_one_grant",
    ),
    broken.RegrantForgetsToAsk: ("a_repeated_takeover_still_requires_verification",),
    broken.RegrantIsASecondGrant: (
        "a_claim_repeated_with_its_nonce_gives_the_same_grant",
        "concurrent_repetitions_of_a_claim_are_one_grant",
    ),
    broken.OverwritesOnConflict: ("a_repeated_completion_succeeds_or_conflicts_by_content",),
    broken.ParkingCutsOff: ("a_parked_record_accepts_its_late_owner_or_an_operator",),
    broken.ResolvesAnyState: ("only_the_first_of_two_resolutions_wins",),
    broken.CountsAttemptsOnFailure: ("of_many_takeovers_of_an_expired_lease_exactly_one_wins",),
    broken.TakeOverLosesNotes: ("claims_in_every_row_agree_with_the_state_table",),
    broken.IgnoresNewerVersions: ("a_record_of_a_newer_version_is_not_changed",),
    broken.ParksNothing: ("owner_requests_in_every_row_agree_with_the_state_table",),
    broken.FloatingTimes: ("large_numbers_stay_exact",),
    broken.CutsTextAtNul: ("every_text_is_returned_unchanged",),
    broken.CollatesKeys: ("only_the_id_identifies_a_record",),
    broken.TrimsNames: ("keys_and_scopes_may_be_any_text",),
    broken.TokenResetByPurge: (
        "tokens_grow_across_purge_even_if_the_clock_is_set_back",
        "a_purge_during_claims_grants_no_key_twice",
    ),
    broken.TokenIsTheTime: (
        "tokens_grow_through_every_transition",
        "tokens_grow_while_the_clock_is_set_back_by_days",
    ),
    broken_lookups.LookupIgnoresTheWindow: (
        "a_lookup_returns_only_what_a_claim_would_replay",
        "random_histories_agree_with_the_state_table",
    ),
    broken_lookups.LookupIgnoresThePayload: (
        "a_lookup_returns_only_what_a_claim_would_replay",
        "random_histories_agree_with_the_state_table",
    ),
    broken_lookups.LookupIgnoresNewerVersions: ("a_lookup_ignores_records_of_a_newer_version",),
    broken_lookups.LookupReturnsUnfinishedRecords: (
        "a_lookup_returns_only_what_a_claim_would_replay",
        "random_histories_agree_with_the_state_table",
    ),
    broken_lookups.LookupReturnsFailures: (
        "a_lookup_returns_only_what_a_claim_would_replay",
        "random_histories_agree_with_the_state_table",
    ),
    broken_lookups.LookupNeverSlides: ("a_lookup_does_not_extend_a_sliding_window",),
    broken_lookups.LookupReturnsNothing: ("a_lookup_returns_only_what_a_claim_would_replay",),
    broken_lookups.LookupLosesResults: ("a_lookup_returns_only_what_a_claim_would_replay",),
    broken_lookups.LookupWrites: ("a_lookup_returns_only_what_a_claim_would_replay",),
    broken_ways.GetThenPut: (
        "of_many_claimants_of_one_key_exactly_one_acquires",
        "many_claimants_may_share_one_store",
        "of_many_takeovers_of_an_expired_lease_exactly_one_wins",
        "the_late_owner_and_its_successor_do_not_both_win",
        "a_claim_protects_an_unsafe_counter",
        "batches_in_different_orders_neither_deadlock_nor_share_a_key",
    ),
    broken_ways.BatchJoinsOnTheKeyAlone: ("two_requests_for_one_key_in_one_batch_never_both_win",),
    broken_ways.AnswersInKeyOrder: (
        "answers_are_in_request_order",
        "batches_in_different_orders_neither_deadlock_nor_share_a_key",
    ),
    broken_ways.AnswersEmptyRequests: ("empty_requests_get_empty_answers",),
    broken_ways.PurgesYoungTokens: ("purge_keeps_recent_tokens",),
    broken_ways.PurgesByAge: ("purge_deletes_all_expired_records_in_batches",),
    broken_ways.PurgesNothing: (
        "purge_deletes_all_expired_records_in_batches",
        "purge_deletes_the_stored_record",
    ),
    broken_ways.PurgesReclaimedKeys: ("purge_keeps_a_key_that_was_claimed_again",),
    broken_ways.PurgeDecidesThenDeletes: ("a_purge_during_claims_grants_no_key_twice",),
    broken_ways.ForgetDeletes: (
        "tokens_grow_through_every_transition",
        "resolve_and_forget_in_every_row_agree_with_the_state_table",
    ),
    broken_ways.ForgetsLiveOwners: ("forget_refuses_a_live_owner_unless_forced",),
    broken_ways.ScanSkipsAtPageEnds: ("pages_of_any_size_show_each_record_once",),
    broken_ways.ScanByOffset: ("a_scan_survives_concurrent_changes",),
    broken_ways.ScanBeginsAnew: ("a_scan_continues_although_its_last_record_was_purged_or_recreated",),
    broken_ways.UsesSettingsOfTheFirstRequest: ("each_request_of_a_batch_uses_its_own_settings",),
    broken_ways.ScanIgnoresAge: ("filters_choose_by_state_scope_key_and_age",),
    broken_ways.SortsWhatItFoundFirst: ("sorted_pages_do_not_depend_on_ids",),
    broken_ways.CountsWithoutScopes: ("counts_are_by_scope_and_state",),
    broken_ways.NotifiesNoWatcher: ("a_watcher_is_notified_when_the_owner_settles",),
    broken_ways.RenewsWithoutStoring: ("answers_match_the_database", "the_writes_hook_detects_writes"),
    broken_ways.CloneIsEmpty: ("a_clone_shares_the_data_and_is_closed_separately",),
    broken_ways.Nameless: ("a_store_has_a_readable_name",),
    broken_trails.ForgetsToSign: ("a_signed_change_is_in_the_audit_trail",),
    broken_trails.ForgetsToSignPurges: ("a_signed_purge_is_one_entry_with_a_count",),
    broken_trails.SignsEveryChange: ("unsigned_and_ineffective_calls_are_not_in_the_trail",),
    broken_trails.SignsRefusals: ("unsigned_and_ineffective_calls_are_not_in_the_trail",),
    broken_trails.SignsAtItsOwnTime: ("a_signed_change_is_in_the_audit_trail",),
    broken_trails.CutsReasons: ("a_signed_change_is_in_the_audit_trail",),
    broken_trails.OldestFirst: ("the_trail_can_be_filtered",),
    broken_trails.IgnoresTheAgeOfEntries: ("the_trail_can_be_filtered",),
    broken_trails.NeverExpiresTheTrail: ("the_trail_expires_after_its_retention",),
    broken_trails.PurgesTheTrailWithTheRecord: ("the_trail_expires_after_its_retention",),
    broken_trails.CountsPurgesOneByOne: ("a_signed_purge_is_one_entry_with_a_count",),
    broken_trails.SignsThenTries: ("of_concurrent_resolutions_only_the_winner_is_in_the_trail",),
    broken_trails.ForgetIgnoresExpectedState: (
        "forget_and_resolve_check_the_state_that_was_seen",
        "resolve_and_forget_in_every_row_agree_with_the_state_table",
        "unsigned_and_ineffective_calls_are_not_in_the_trail",
    ),
    broken_trails.ResolveIgnoresExpectedState: ("forget_and_resolve_check_the_state_that_was_seen",),
    broken_listings.ListsOldestFirst: ("a_listing_contains_each_record_once_newest_first",),
    broken_listings.ListsResults: ("a_listing_contains_each_record_once_newest_first",),
    broken_listings.ListsByCreation: ("unfinished_records_are_listed_by_their_last_claim",),
    broken_listings.FiltersWithoutNotes: ("every_filter_of_a_listing_returns_what_matches",),
    broken_listings.FiltersAnyCase: ("every_filter_of_a_listing_returns_what_matches",),
    broken_listings.ListsByOffset: ("a_listing_shows_no_record_twice_while_records_change",),
    broken_listings.ListsTheLatestClaims: ("the_oldest_claims_are_listed_and_the_unfinished_are_counted",),
    broken_listings.CountsPastTheLimit: ("the_oldest_claims_are_listed_and_the_unfinished_are_counted",),
    broken_listings.BeginsAnewWithoutACursor: ("what_is_not_a_cursor_of_a_listing_is_refused",),
    broken_windows.ZeroWindowNeverEnds: ("a_window_of_zero_ends_immediately_and_the_key_starts_a_new_cycle",),
    broken_windows.CountsFromTheEnd: ("a_window_may_start_at_the_claim_for_success_and_failure",),
    broken_latest.ComparesTimestampsOnly: (
        "any_order_and_repetition_of_a_history_ends_in_the_same_state",
        "concurrent_deliveries_of_a_history_end_in_the_same_state",
        "parts_decide_in_their_order_and_a_missing_one_is_lowest",
        "a_tie_is_decided_by_content_whichever_comes_first",
    ),
    broken_latest.TiesGoToTheLastArrival: (
        "any_order_and_repetition_of_a_history_ends_in_the_same_state",
        "a_tie_is_decided_by_content_whichever_comes_first",
    ),
    broken_latest.ComparesAsText: ("orders_are_compared_byte_by_byte",),
    broken_latest.StopsAtNul: (
        "orders_are_compared_byte_by_byte",
        "any_order_and_repetition_of_a_history_ends_in_the_same_state",
    ),
    broken_latest.LastArrivalWins: (
        "a_newer_event_is_applied_and_an_older_one_is_stale",
        "of_concurrent_events_the_newest_wins",
    ),
    broken_latest.DuplicatesPass: ("a_republished_event_changes_nothing_whatever_its_transport_says",),
    broken_latest.EventsMayChange: ("a_known_event_with_other_content_is_a_mismatch",),
    broken_latest.RemembersMismatches: ("a_known_event_with_other_content_is_a_mismatch",),
    broken_latest.DeletesOutright: (
        "older_events_do_not_restore_a_deleted_entity",
        "any_order_and_repetition_of_a_history_ends_in_the_same_state",
    ),
    broken_latest.StaleEventsSetNoMark: ("a_stale_event_marks_its_message_as_known",),
    broken_latest.IgnoresOtherContent: ("a_known_message_is_a_duplicate_or_a_mismatch",),
    broken_latest.SharesMessages: ("entities_do_not_share_messages",),
    broken_latest.OneTierOnly: ("a_republished_event_changes_nothing_whatever_its_transport_says",),
    broken_latest.RepeatedEventIsStale: ("events_without_an_id_are_identified_by_their_order",),
    broken_latest.AppliesTheFuture: ("a_future_event_is_parked_and_stores_nothing",),
    broken_latest.MarksWhatItParks: ("a_future_event_is_parked_and_stores_nothing",),
    broken_latest.NeverExpiresMarks: ("marks_expire_and_are_deleted_in_batches",),
    broken_latest.NeverExpiresTombstones: ("the_tombstone_of_a_deleted_entity_expires",),
    broken_latest.ExpiresWhatCameBack: ("the_tombstone_of_a_deleted_entity_expires",),
    broken_latest.NeverSweeps: ("a_store_in_use_expires_old_data",),
    broken_latest.IgnoresEarlierEventsOfTheBatch: (
        "a_batch_equals_single_deliveries",
        "any_order_and_repetition_of_a_history_ends_in_the_same_state",
    ),
    broken_latest.AnswersByEntity: ("a_batch_equals_single_deliveries",),
    broken_latest.ReadsOnlyTheFirstPage: ("large_and_empty_batches_work",),
    broken_latest.ListsAllScopes: ("entities_with_a_value_are_listed_in_pages",),
    broken_latest.ListsDeletedEntities: ("entities_with_a_value_are_listed_in_pages",),
    broken_latest.ListsAsWritten: ("entities_with_a_value_are_listed_in_pages",),
    broken_latest.ShowsWhatHasExpired: ("marks_are_listed_until_they_expire",),
    broken_latest.LooksThenWrites: (
        "of_concurrent_deliveries_of_a_message_one_is_applied",
        "of_concurrent_events_the_newest_wins",
    ),
    broken_counts.AddsUp: (
        "a_row_written_twice_counts_once",
        "a_later_row_of_an_hour_replaces_the_earlier_one",
        "concurrent_writers_lose_no_counts",
    ),
    broken_counts.TakesTheLastArrival: ("an_older_row_that_arrives_late_changes_nothing",),
    broken_counts.KeepsTheFirst: ("a_later_row_of_an_hour_replaces_the_earlier_one",),
    broken_counts.OneRowAnHour: (
        "processes_and_hours_do_not_overwrite_each_other",
        "concurrent_writers_lose_no_counts",
    ),
    broken_counts.BorrowsTheCounts: ("counters_are_read_as_they_were_written",),
    broken_counts.WritesOnEmptySave: ("saving_no_rows_returns_the_time_and_writes_nothing",),
    broken_counts.ReturnsTheMachinesTime: ("the_time_is_that_of_the_store",),
    broken_counts.NeverExpiresCounts: ("old_rows_are_hidden_and_deleted",),
    broken_key_history.ReadsTheLatestFirst: ("events_are_read_as_they_were_written_the_latest_last",),
    broken_key_history.InsertsEveryEvent: ("an_event_written_twice_counts_once_and_summed_events_add_up",),
    broken_key_history.KeepsEveryEvent: ("only_the_latest_events_of_a_key_are_kept",),
    broken_key_history.TrustsLateEvents: ("an_event_of_a_missing_or_forgotten_record_is_not_written",),
    broken_key_history.KeepsTheHistoryOfForgottenKeys: ("an_event_of_a_missing_or_forgotten_record_is_not_written",),
    broken_key_history.KeepsTheHistoryOfDeletedRecords: (
        "purge_deletes_the_events_with_the_record",
        "erasure_deletes_the_events_of_a_key_that_was_free_before",
    ),
}

NEED_ANOTHER_FACTORY = {
    "two_stores_on_the_same_data_see_each_other",
    "records_survive_reopening",
    "the_trail_survives_reopening",
    "processes_never_own_a_key_at_the_same_time",
    "states_and_marks_survive_reopening",
    "processes_that_deliver_a_history_end_in_the_same_state",
    "counters_survive_reopening",
}
"""Tested further down: there, the bug is not in one store but in how several stores share a directory."""

ATTEMPTS = 5
CASES = [(kind, name) for kind, names in CAUGHT_BY.items() for name in names]

both_modes = pytest.mark.parametrize("mode", ["blocking", "asyncio"])


@pytest.fixture(autouse=True)
def _without_shrinking() -> Iterator[None]:
    """It is enough that a history fails; shrinking it would take longer than all the rest."""
    chosen = settings.get_current_profile_name()
    settings.register_profile("no shrinking", settings.get_profile(chosen), phases=(Phase.generate,), print_blob=False)
    settings.load_profile("no shrinking")
    yield
    settings.load_profile(chosen)


@pytest.mark.rival(1, 2, 5, 18, 20, 22, 23, 24)
@pytest.mark.fault("F36", "F40", "F41", "F42", "F66")
@both_modes
@pytest.mark.parametrize(("kind", "name"), CASES, ids=[f"{kind.__name__}-{name}" for kind, name in CASES])
def test_the_kit_catches(kind: type[MemoryStore], name: str, mode: str, tmp_path: Path) -> None:
    class Kit(InMemory):
        pass

    Kit.kind = kind
    assert_caught(Kit(), name, mode, tmp_path)


def test_every_broken_store_is_tested_and_every_check_has_a_broken_store() -> None:
    checks = {name.removeprefix("test_") for name in dir(InMemory) if name.startswith("test_")}
    stores = {
        kind
        for module in (
            broken,
            broken_counts,
            broken_key_history,
            broken_lookups,
            broken_latest,
            broken_listings,
            broken_trails,
            broken_ways,
            broken_windows,
        )
        for kind in vars(module).values()
        if isinstance(kind, type)
    }
    kinds = {kind for kind in stores if issubclass(kind, MemoryStore) and not kind.__subclasses__()}
    tested_separately = {broken_ways.UnlockedFiles, broken_latest.StepwiseUnaltered}
    assert set(CAUGHT_BY) | tested_separately == kinds
    assert {name for _, name in CASES} | NEED_ANOTHER_FACTORY == checks


class SeparateStores(InMemory):
    """Claims that two stores share a directory, but each has its own data in memory."""

    durable = True

    def open(self, directory: Path, clock: Clock) -> MemoryStore:
        return MemoryStore(clock=clock)


@both_modes
@pytest.mark.parametrize(
    "name",
    [
        "two_stores_on_the_same_data_see_each_other",
        "records_survive_reopening",
        "the_trail_survives_reopening",
        "states_and_marks_survive_reopening",
        "counters_survive_reopening",
    ],
)
def test_the_kit_catches_stores_that_share_nothing(name: str, mode: str, tmp_path: Path) -> None:
    assert_caught(SeparateStores(), name, mode, tmp_path)


class Unlocked(InMemory):
    """Child processes open it again by its name."""

    shared = True
    kind: ClassVar[type[MemoryStore]] = broken_ways.UnlockedFiles

    def open(self, directory: Path, clock: Clock) -> MemoryStore:
        store = broken_ways.UnlockedFiles(clock=clock)
        store.folder = directory
        return store


@pytest.mark.rival(18)
@both_modes
@pytest.mark.parametrize(
    "name",
    [
        "processes_never_own_a_key_at_the_same_time",
        "processes_that_deliver_a_history_end_in_the_same_state",
    ],
)
def test_the_kit_catches_processes_that_share_files_without_a_lock(name: str, mode: str, tmp_path: Path) -> None:
    assert_caught(Unlocked(), name, mode, tmp_path)


class StepwiseUnaltered(InMemory):
    """The guard that the broken stores alter is sound: all its checks pass."""

    kind: ClassVar[type[MemoryStore]] = broken_latest.StepwiseUnaltered


@pytest.mark.parametrize("name", sorted({name for kind, names in CAUGHT_BY.items() for name in names
                                         if issubclass(kind, broken_latest.Stepwise)}))  # fmt: skip
def test_the_guard_that_the_broken_ones_alter_is_sound(name: str, tmp_path: Path) -> None:
    getattr(StepwiseUnaltered(), f"test_{name}")("blocking", tmp_path)


def assert_caught(kit: InMemory, name: str, mode: str, directory: Path) -> None:
    """Run the check until it fails: a race may miss the bug a few times on a busy machine."""
    said = None
    for attempt in range(ATTEMPTS):
        (place := directory / str(attempt)).mkdir()
        try:
            getattr(kit, f"test_{name}")(mode, place)
        except AssertionError as caught:
            said = str(caught).partition("\n")[0]
            break
    assert said is not None, f"{name} does not notice {kit.kind.__name__}"
    assert said, "a check must say what is wrong"
    print(f"{kit.kind.__name__}: {kit.kind.__doc__} Caught by {name} ({mode}): {said:.160}")

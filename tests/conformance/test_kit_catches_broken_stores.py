"""A check that cannot fail is no check: each is shown a store that is broken in the way it is there for."""

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
    broken_glances,
    broken_latest,
    broken_trails,
    broken_ways,
    broken_windows,
)
from tests.conformance.in_memory import InMemory

CAUGHT_BY: dict[type[MemoryStore], tuple[str, ...]] = {
    broken.BlindTakeOver: (
        "of_many_claimants_of_one_key_exactly_one_acquires",
        "many_claimants_may_share_one_store",
        "an_unsafe_counter_loses_nothing_behind_a_claim",
        "another_nonce_is_another_claim",
        "a_repeated_claim_of_somebody_replaced_gets_nothing",
        "random_histories_agree_with_the_state_table",
    ),
    broken.MissingLeaseIsFree: ("a_missing_lease_is_held_not_free", "random_histories_agree_with_the_state_table"),
    broken.CompletesWhatNobodyClaimed: ("nobody_owns_a_key_that_was_never_claimed",),
    broken.CompletesForAnybody: (
        "a_replaced_owner_changes_nothing_while_the_new_one_works",
        "a_replaced_owner_changes_nothing_after_the_new_one_settled",
        "random_histories_agree_with_the_state_table",
    ),
    broken.RenewsForAnybody: ("a_replaced_owner_changes_nothing_while_the_new_one_works",),
    broken.IgnoresTheNonceOfOwners: (
        "nearly_the_owner_is_not_the_owner",
        "owners_and_strangers_verbs_in_each_row_do_as_the_table_says",
    ),
    broken.RefusesLateOwners: ("a_late_owner_whom_nobody_replaced_may_still_do_everything",),
    broken.FailureDeletes: (
        "a_failure_leaves_the_record_and_its_attempts",
        "random_histories_agree_with_the_state_table",
    ),
    broken.ReleaseDeletes: (
        "tokens_grow_while_the_clock_is_set_back_by_days",
        "other_settlements_again_are_fine_and_change_nothing",
    ),
    broken.LosesFalsyResults: ("every_result_replays_as_it_was", "random_histories_agree_with_the_state_table"),
    broken.ForgetsThatNothingWasKept: ("a_result_that_was_not_kept_is_not_a_result_of_none",),
    broken.LosesThePayloadOnCompletion: (
        "another_payload_is_a_mismatch_in_every_state",
        "a_claim_of_a_record_in_each_row_answers_as_the_table_says",
    ),
    broken.SkipsThePayloadOnTakeOver: ("another_payload_is_a_mismatch_in_every_state",),
    broken.ReplaysExtendNothing: ("a_sliding_window_moves_with_its_replays",),
    broken.CompletesWhatItsOwnerHas: ("a_completion_answers_with_what_is_there_not_with_what_its_owner_has",),
    broken.WritesNothingWhenBrief: ("a_completion_that_is_answered_briefly_is_one_all_the_same",),
    broken.CompletesAgainWhenBrief: ("who_is_answered_briefly_is_judged_like_anybody_else",),
    broken.TrustsTheCarriedRecord: ("the_record_that_a_completion_carries_is_no_proof_of_ownership",),
    broken.KeepsAnotherEnd: ("a_completion_answers_with_the_end_that_is_kept",),
    broken.ReplaysWrite: ("what_changes_nothing_writes_nothing",),
    broken.RegrantIgnoresTheNonce: (
        "a_claim_repeated_with_its_nonce_gives_the_same_grant",
        "a_repeated_claim_whose_lease_lapsed_is_live_again",
        "a_repeated_claim_after_its_own_end_never_runs_again",
        "one_claim_that_arrives_many_times_at_once_is_one_grant",
    ),
    broken.RegrantForgetsToAsk: ("a_repeated_take_over_still_says_that_one_must_ask_first",),
    broken.RegrantIsASecondGrant: (
        "a_claim_repeated_with_its_nonce_gives_the_same_grant",
        "one_claim_that_arrives_many_times_at_once_is_one_grant",
    ),
    broken.OverwritesOnConflict: ("completing_again_is_fine_with_equal_content_and_a_conflict_with_other",),
    broken.ParkingCutsOff: ("a_parked_record_answers_its_late_owner_and_whoever_knows",),
    broken.ResolvesForAnybody: ("only_the_first_of_two_resolutions_holds",),
    broken.CountsAttemptsOnFailure: ("of_many_who_take_over_a_lapsed_lease_exactly_one_wins",),
    broken.TakeOverLosesNotes: ("a_claim_of_a_record_in_each_row_answers_as_the_table_says",),
    broken.IgnoresNewerVersions: ("a_record_of_a_newer_version_is_left_alone",),
    broken.ParksNobody: ("owners_and_strangers_verbs_in_each_row_do_as_the_table_says",),
    broken.FloatingTimes: ("large_numbers_stay_exact",),
    broken.CutsTextAtNul: ("every_text_comes_back_as_it_was",),
    broken.CollatesKeys: ("the_id_alone_decides_whether_two_keys_are_one",),
    broken.TrimsNames: ("readable_keys_and_scopes_are_text_like_any_other",),
    broken.TokenResetByPurge: (
        "tokens_grow_across_purge_even_if_the_clock_is_set_back",
        "purge_racing_claims_lets_nobody_in_twice",
    ),
    broken.TokenIsTheTime: (
        "tokens_grow_whatever_happens_to_a_key",
        "tokens_grow_while_the_clock_is_set_back_by_days",
    ),
    broken_glances.GlanceIgnoresTheWindow: (
        "a_glance_shows_what_a_claim_would_replay_and_nothing_else",
        "random_histories_agree_with_the_state_table",
    ),
    broken_glances.GlanceIgnoresThePayload: (
        "a_glance_shows_what_a_claim_would_replay_and_nothing_else",
        "random_histories_agree_with_the_state_table",
    ),
    broken_glances.GlanceIgnoresNewerVersions: ("a_glance_shows_nothing_of_a_newer_version",),
    broken_glances.GlanceShowsWhatIsNotDone: (
        "a_glance_shows_what_a_claim_would_replay_and_nothing_else",
        "random_histories_agree_with_the_state_table",
    ),
    broken_glances.GlanceShowsFailures: (
        "a_glance_shows_what_a_claim_would_replay_and_nothing_else",
        "random_histories_agree_with_the_state_table",
    ),
    broken_glances.GlanceNeverSlides: ("a_glance_leaves_it_to_the_claim_to_move_a_window",),
    broken_glances.GlanceShowsNothing: ("a_glance_shows_what_a_claim_would_replay_and_nothing_else",),
    broken_glances.GlanceLosesResults: ("a_glance_shows_what_a_claim_would_replay_and_nothing_else",),
    broken_glances.GlanceWrites: ("a_glance_shows_what_a_claim_would_replay_and_nothing_else",),
    broken_ways.GetThenPut: (
        "of_many_claimants_of_one_key_exactly_one_acquires",
        "many_claimants_may_share_one_store",
        "of_many_who_take_over_a_lapsed_lease_exactly_one_wins",
        "the_late_owner_and_its_successor_do_not_both_win",
        "an_unsafe_counter_loses_nothing_behind_a_claim",
        "batches_in_different_orders_neither_deadlock_nor_share_a_key",
    ),
    broken_ways.AnswersAtOnceToAnybody: ("what_is_answered_at_once_is_what_the_table_says",),
    broken_ways.BatchJoinsOnTheKeyAlone: ("two_requests_for_one_key_in_one_batch_never_both_win",),
    broken_ways.AnswersInKeyOrder: (
        "answers_come_in_the_order_of_the_questions",
        "batches_in_different_orders_neither_deadlock_nor_share_a_key",
    ),
    broken_ways.AnswersNobody: ("nothing_asked_nothing_answered",),
    broken_ways.PurgesYoungTokens: ("purge_spares_young_tokens",),
    broken_ways.PurgesByAge: ("purge_deletes_all_that_answers_for_nothing_in_batches",),
    broken_ways.PurgesNothing: (
        "purge_deletes_all_that_answers_for_nothing_in_batches",
        "purge_really_deletes",
    ),
    broken_ways.PurgesByAnEarlierLife: ("purge_follows_a_key_that_came_back",),
    broken_ways.PurgeDecidesThenDeletes: ("purge_racing_claims_lets_nobody_in_twice",),
    broken_ways.ForgetDeletes: (
        "tokens_grow_whatever_happens_to_a_key",
        "resolve_and_forget_in_each_row_do_as_the_table_says",
    ),
    broken_ways.ForgetsTheLiving: ("forget_spares_a_live_owner_and_cuts_it_off_when_forced",),
    broken_ways.ScanSkipsAtPageEnds: ("pages_of_any_size_show_each_record_once",),
    broken_ways.ScanByOffset: ("a_scan_survives_what_others_do_meanwhile",),
    broken_ways.ScanBeginsAnew: ("a_scan_goes_on_where_it_was_although_what_it_saw_last_is_gone_or_came_back",),
    broken_ways.TakesOneForAll: ("each_of_a_batch_is_judged_by_its_own_request",),
    broken_ways.ScanIgnoresAge: ("filters_choose_by_state_scope_key_and_age",),
    broken_ways.SortsWhatItFoundFirst: ("the_first_of_an_order_are_found_whatever_their_ids",),
    broken_ways.CountsWithoutScopes: ("counts_are_by_scope_and_state",),
    broken_ways.WakesNobody: ("a_watcher_is_woken_when_the_owner_settles",),
    broken_ways.SaysButDoesNotStore: ("what_the_store_says_lies_in_the_database", "the_hook_sees_what_is_written"),
    broken_ways.TwinOfItsOwn: ("a_twin_has_the_same_data_and_a_life_of_its_own",),
    broken_ways.Nameless: ("a_store_has_a_name_for_people",),
    broken_trails.ForgetsToSign: ("what_is_signed_is_in_the_audit_trail_with_what_it_changed",),
    broken_trails.ForgetsToSignPurges: ("a_signed_purge_is_one_entry_that_counts",),
    broken_trails.SignsEveryChange: ("what_changed_nothing_or_was_not_signed_is_not_in_the_trail",),
    broken_trails.SignsRefusals: ("what_changed_nothing_or_was_not_signed_is_not_in_the_trail",),
    broken_trails.SignsAtItsOwnTime: ("what_is_signed_is_in_the_audit_trail_with_what_it_changed",),
    broken_trails.CutsReasons: ("what_is_signed_is_in_the_audit_trail_with_what_it_changed",),
    broken_trails.OldestFirst: ("the_trail_is_searched_by_record_scope_key_age_and_number",),
    broken_trails.IgnoresTheAgeOfEntries: ("the_trail_is_searched_by_record_scope_key_age_and_number",),
    broken_trails.KeepsTheTrailForEver: ("the_trail_is_kept_for_long_but_not_for_ever",),
    broken_trails.PurgesTheTrailWithTheRecord: ("the_trail_is_kept_for_long_but_not_for_ever",),
    broken_trails.CountsPurgesOneByOne: ("a_signed_purge_is_one_entry_that_counts",),
    broken_trails.SignsThenTries: ("of_many_who_resolve_at_once_only_the_one_who_did_is_in_the_trail",),
    broken_trails.ForgetsUnseen: (
        "nobody_forgets_or_resolves_what_they_did_not_see",
        "resolve_and_forget_in_each_row_do_as_the_table_says",
        "what_changed_nothing_or_was_not_signed_is_not_in_the_trail",
    ),
    broken_trails.ResolvesUnseen: ("nobody_forgets_or_resolves_what_they_did_not_see",),
    broken_windows.NothingIsForEver: ("a_window_of_nothing_is_over_at_once_and_its_key_starts_anew",),
    broken_windows.CountsFromTheEnd: ("a_window_may_count_from_the_attempt_whether_it_succeeds_or_fails",),
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
        "of_different_events_at_once_the_newest_stays",
    ),
    broken_latest.DuplicatesDoNotPass: (
        "an_event_that_is_published_again_is_a_duplicate_and_still_passes_the_guard",
        "any_order_and_repetition_of_a_history_ends_in_the_same_state",
        "a_message_that_is_known_is_a_duplicate_and_with_other_content_a_mismatch",
    ),
    broken_latest.DeletesOutright: (
        "a_deleted_entity_is_not_brought_back_by_older_events",
        "any_order_and_repetition_of_a_history_ends_in_the_same_state",
    ),
    broken_latest.StaleEventsClaimNothing: ("a_stale_event_claims_its_message_too",),
    broken_latest.IgnoresOtherContent: ("a_message_that_is_known_is_a_duplicate_and_with_other_content_a_mismatch",),
    broken_latest.SharesMessages: ("entities_do_not_share_messages",),
    broken_latest.OneTierOnly: ("an_event_that_is_published_again_is_a_duplicate_and_still_passes_the_guard",),
    broken_latest.TheSameAgainIsStale: ("events_without_any_id_are_known_by_their_order",),
    broken_latest.AppliesTheFuture: ("an_event_of_the_future_is_parked_and_leaves_nothing_behind",),
    broken_latest.ClaimsWhatItParks: ("an_event_of_the_future_is_parked_and_leaves_nothing_behind",),
    broken_latest.KeepsMarksForEver: ("marks_expire_and_are_deleted_in_batches",),
    broken_latest.KeepsDeletedForEver: ("what_is_left_of_a_deleted_entity_expires",),
    broken_latest.ExpiresWhatCameBack: ("what_is_left_of_a_deleted_entity_expires",),
    broken_latest.NeverSweeps: ("a_store_in_use_does_not_only_grow",),
    broken_latest.JudgesByWhatWasThereBefore: (
        "a_batch_is_the_same_as_one_after_the_other",
        "any_order_and_repetition_of_a_history_ends_in_the_same_state",
    ),
    broken_latest.AnswersByEntity: ("a_batch_is_the_same_as_one_after_the_other",),
    broken_latest.LooksAtTheFirstThousand: ("large_batches_and_none_at_all",),
    broken_latest.ListsEverybodys: ("entities_of_the_scope_that_have_a_value_are_listed_in_pages",),
    broken_latest.ListsTheDead: ("entities_of_the_scope_that_have_a_value_are_listed_in_pages",),
    broken_latest.ListsAsWritten: ("entities_of_the_scope_that_have_a_value_are_listed_in_pages",),
    broken_latest.ShowsWhatHasExpired: ("a_message_and_an_event_are_shown_as_long_as_they_are_known",),
    broken_latest.LooksThenWrites: (
        "of_many_who_bring_the_same_message_one_applies_it",
        "of_different_events_at_once_the_newest_stays",
    ),
    broken_counts.AddsUp: (
        "a_sheet_that_is_written_twice_counts_once",
        "a_later_sheet_of_an_hour_takes_the_place_of_the_earlier_one",
        "many_write_at_once_and_nothing_is_lost",
    ),
    broken_counts.TakesTheLastArrival: ("a_sheet_that_was_overtaken_on_its_way_changes_nothing",),
    broken_counts.KeepsTheFirst: ("a_later_sheet_of_an_hour_takes_the_place_of_the_earlier_one",),
    broken_counts.OneRowAnHour: (
        "processes_and_hours_do_not_write_over_each_other",
        "many_write_at_once_and_nothing_is_lost",
    ),
    broken_counts.BorrowsTheCounts: ("what_was_counted_is_there_as_it_was_written",),
    broken_counts.SignsTheVisitorsBook: ("without_sheets_only_the_time_is_told",),
    broken_counts.TellsItsOwnTime: ("the_time_is_the_stores",),
    broken_counts.ShowsCountsForEver: ("old_sheets_are_not_shown_and_go",),
}

NEED_ANOTHER_FACTORY = {
    "two_stores_on_one_place_see_each_other",
    "what_was_written_outlives_the_store",
    "the_trail_outlives_the_store",
    "processes_on_one_place_never_own_a_key_at_the_same_time",
    "states_and_marks_outlive_the_store",
    "processes_that_deliver_a_history_end_in_the_same_state",
    "counters_outlive_the_store",
}
"""Caught further down: what is broken there is not one store, but how several share a place."""

CASES = [(kind, name) for kind, names in CAUGHT_BY.items() for name in names]

both_colours = pytest.mark.parametrize("mode", ["blocking", "asyncio"])


@pytest.fixture(autouse=True)
def _without_shrinking() -> Iterator[None]:
    """That a history fails is enough here; to find the shortest takes longer than all the rest."""
    chosen = settings.get_current_profile_name()
    settings.register_profile("only whether", settings.get_profile(chosen), phases=(Phase.generate,), print_blob=False)
    settings.load_profile("only whether")
    yield
    settings.load_profile(chosen)


@pytest.mark.rival(1, 2, 5, 18, 20, 22, 23, 24)
@pytest.mark.fault("F36", "F40", "F41", "F42", "F66")
@both_colours
@pytest.mark.parametrize(("kind", "name"), CASES, ids=[f"{kind.__name__}-{name}" for kind, name in CASES])
def test_the_kit_catches(kind: type[MemoryStore], name: str, mode: str, tmp_path: Path) -> None:
    class Kit(InMemory):
        pass

    Kit.kind = kind
    assert_caught(Kit(), name, mode, tmp_path)


@pytest.mark.rival(1)
def test_the_kit_catches_answers_without_a_lock(tmp_path: Path) -> None:
    """Only where threads meet: on a loop nothing comes between the two steps."""

    class Kit(InMemory):
        kind = broken_ways.AnswersAtOnceInTwoSteps

    assert_caught(Kit(), "of_many_who_are_answered_at_once_exactly_one_acquires", "blocking", tmp_path)


def test_every_broken_store_is_shown_to_the_kit_and_every_check_is_shown_a_broken_store() -> None:
    checks = {name.removeprefix("test_") for name in dir(InMemory) if name.startswith("test_")}
    stores = {
        kind
        for module in (
            broken,
            broken_counts,
            broken_glances,
            broken_latest,
            broken_trails,
            broken_ways,
            broken_windows,
        )
        for kind in vars(module).values()
        if isinstance(kind, type)
    }
    kinds = {kind for kind in stores if issubclass(kind, MemoryStore) and not kind.__subclasses__()}
    apart = {broken_ways.UnlockedFiles, broken_ways.AnswersAtOnceInTwoSteps, broken_latest.SpelledRightly}
    assert set(CAUGHT_BY) | apart == kinds
    at_once = {"of_many_who_are_answered_at_once_exactly_one_acquires"}
    assert {name for _, name in CASES} | NEED_ANOTHER_FACTORY | at_once == checks


class Strangers(InMemory):
    """Says that two stores share a place, but each has data of its own, which nobody keeps."""

    durable = True

    def open(self, place: Path, clock: Clock) -> MemoryStore:
        return MemoryStore(clock=clock)


@both_colours
@pytest.mark.parametrize(
    "name",
    [
        "two_stores_on_one_place_see_each_other",
        "what_was_written_outlives_the_store",
        "the_trail_outlives_the_store",
        "states_and_marks_outlive_the_store",
        "counters_outlive_the_store",
    ],
)
def test_the_kit_catches_stores_that_share_nothing(name: str, mode: str, tmp_path: Path) -> None:
    assert_caught(Strangers(), name, mode, tmp_path)


class Unlocked(InMemory):
    """Opened again by name in the children."""

    shared = True
    kind: ClassVar[type[MemoryStore]] = broken_ways.UnlockedFiles

    def open(self, place: Path, clock: Clock) -> MemoryStore:
        store = broken_ways.UnlockedFiles(clock=clock)
        store.folder = place
        return store


@pytest.mark.rival(18)
@both_colours
@pytest.mark.parametrize(
    "name",
    [
        "processes_on_one_place_never_own_a_key_at_the_same_time",
        "processes_that_deliver_a_history_end_in_the_same_state",
    ],
)
def test_the_kit_catches_processes_that_share_files_without_a_lock(name: str, mode: str, tmp_path: Path) -> None:
    assert_caught(Unlocked(), name, mode, tmp_path)


class SpelledRightly(InMemory):
    """What the broken guards alter is sound before they do: all checks of the guard pass."""

    kind: ClassVar[type[MemoryStore]] = broken_latest.SpelledRightly


@pytest.mark.parametrize("name", sorted({name for kind, names in CAUGHT_BY.items() for name in names
                                         if issubclass(kind, broken_latest.Spelled)}))  # fmt: skip
def test_the_guard_that_the_broken_ones_alter_is_sound(name: str, tmp_path: Path) -> None:
    getattr(SpelledRightly(), f"test_{name}")("blocking", tmp_path)


def assert_caught(kit: InMemory, name: str, mode: str, place: Path) -> None:
    with pytest.raises(AssertionError) as caught:
        getattr(kit, f"test_{name}")(mode, place)
    said = str(caught.value).partition("\n")[0]
    assert said, "a check must say what is wrong"
    print(f"{kit.kind.__name__}: {kit.kind.__doc__} Caught by {name} ({mode}): {said:.160}")

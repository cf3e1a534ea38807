"""Tables with one rule broken. Each must be refuted by the search, with a history, and by the proof."""

from __future__ import annotations

from typing import NamedTuple

from .broken_claims import (
    any_payload,
    attempts_never_used_up,
    attempts_not_counted,
    blind_take_over,
    cycle_per_attempt,
    due_immediately,
    fingerprint_before_window,
    missing_lease_is_free,
    only_the_claimant_decides,
    own_nonce_not_recognised,
    parked_is_free,
    parking_drops_the_owner,
    regrant_forgets_to_ask,
    regrant_grants_again,
    seeing,
    settled_nonce_acquires,
    sliding_never_written,
    token_from_the_clock_alone,
    window_forgotten_early,
)
from .broken_endings import (
    complete_without_token,
    completed_twice,
    every_failure_is_known,
    failure_deletes,
    forget_deletes,
    forget_resets_token,
    forget_spares_no_owner,
    late_owner_refused,
    nonce_not_compared,
    not_applied_counts_as_applied,
    purge_inside_the_window,
    purge_of_what_is_parked,
    purge_of_young_tokens,
    release_begins_a_new_cycle,
    release_skips_the_verification,
    release_still_counts,
    renew_gives_a_lease_to_what_has_none,
    renew_revives_what_is_settled,
    renew_without_token,
    resolved_whatever_was_seen,
    resolving_spares_the_late_owner,
    settling,
    token_not_compared,
)
from .observer import ASKED, CYCLE, REPLAYED
from .system import Rules


class Mutant(NamedTuple):
    """The broken rules, and what the search must find: in which scenario, which broken promise, and which harm.

    Mutants without `harm` break rules about cost, waiting or order, which no user sees as a wrong effect.
    """

    rules: Rules
    scenario: str
    promise: str
    harm: str | None = None


LATE = "a replaced owner changes nothing"
GROW = "tokens strictly grow"
ONE = "at most one live owner"
IN_FULL = "park meets verify"

MUTANTS: dict[str, Mutant] = {
    # the four mutants that the protocol names
    "complete without token": Mutant(settling(complete_without_token), "rerun", LATE, LATE),
    "blind takeover": Mutant(seeing(blind_take_over), "rerun", "a live lease is never taken over", ONE),
    "token reset by purge": Mutant(Rules(purgeable=purge_of_young_tokens), "rerun", "purge keeps recent tokens", GROW),
    "missing lease = free": Mutant(
        seeing(missing_lease_is_free), "inside a transaction", "a record without a lease is owned, never free", ONE
    ),
    # ownership and tokens
    "token reset by forget": Mutant(Rules(forget=forget_resets_token), "rerun", "the token never falls", GROW),
    "token from the clock alone": Mutant(
        Rules(claim=token_from_the_clock_alone), "rerun", "a new owner has a new token", GROW
    ),
    "token not compared": Mutant(settling(token_not_compared), "rerun", LATE, LATE),
    "nonce not compared": Mutant(settling(nonce_not_compared), IN_FULL, LATE, LATE),
    "renew without token": Mutant(Rules(renew=renew_without_token), "rerun", LATE, LATE),
    "renew gives a lease where none was": Mutant(
        Rules(renew=renew_gives_a_lease_to_what_has_none), "inside a transaction", "renewing keeps it running"
    ),
    "renew revives what is settled": Mutant(
        Rules(renew=renew_revives_what_is_settled), "rerun", "an owner that has settled changes nothing more"
    ),
    "late owner refused": Mutant(
        Rules(settle=late_owner_refused), "rerun", "an owner that was not replaced may still settle"
    ),
    "parking drops the owner": Mutant(
        Rules(claim=parking_drops_the_owner), "park meets rerun", "a late owner may still report its outcome"
    ),
    "forget deletes": Mutant(Rules(forget=forget_deletes), "rerun", "only purge deletes", GROW),
    "forget spares no owner": Mutant(Rules(forget=forget_spares_no_owner), "rerun", "a refusal changes nothing"),
    # results and windows
    "completed twice": Mutant(
        Rules(settle=completed_twice), "rerun", "an owner that has settled changes nothing more", REPLAYED
    ),
    "window forgotten early": Mutant(seeing(window_forgotten_early), "rerun", REPLAYED, REPLAYED),
    "purge inside the window": Mutant(
        Rules(purgeable=purge_inside_the_window), "rerun", "purge keeps records that are still needed", REPLAYED
    ),
    "sliding never written": Mutant(
        Rules(claim=sliding_never_written), "sliding window", "a sliding window moves with each replay"
    ),
    "fingerprint before window": Mutant(
        Rules(claim=fingerprint_before_window),
        "other payloads",
        "a record that is missing or after its window can be claimed",
    ),
    "any payload replays": Mutant(seeing(any_payload), "other payloads", "another payload neither runs nor replays"),
    # lost replies
    "own nonce not recognised": Mutant(Rules(claim=own_nonce_not_recognised), "rerun", "a lost reply is given again"),
    "regrant gives a second grant": Mutant(Rules(claim=regrant_grants_again), IN_FULL, ASKED, ASKED),
    "regrant forgets to ask": Mutant(Rules(claim=regrant_forgets_to_ask), IN_FULL, "one call, one grant", ASKED),
    "settled nonce acquires": Mutant(
        Rules(claim=settled_nonce_acquires), "two attempts", "a settled nonce never acquires"
    ),
    # after_crash and max_attempts
    "PARKED = free": Mutant(seeing(parked_is_free), "park meets rerun", ASKED, ASKED),
    "stricter side ignored": Mutant(seeing(only_the_claimant_decides), "park meets rerun", ASKED, ASKED),
    "purge of what is parked": Mutant(
        Rules(purgeable=purge_of_what_is_parked), "park meets rerun", "purge keeps records that are still needed", ASKED
    ),
    "every failure is known": Mutant(
        settling(every_failure_is_known), IN_FULL, "under verify a failure of unknown effect is parked"
    ),
    "release skips the verification": Mutant(
        Rules(settle=release_skips_the_verification),
        IN_FULL,
        "release leaves the verification to the next owner",
        ASKED,
    ),
    "attempts not counted": Mutant(Rules(claim=attempts_not_counted), "rerun", "attempts count on claim"),
    "attempts never used up": Mutant(
        Rules(claim=attempts_never_used_up), "two attempts", "no more attempts than allowed"
    ),
    "failures due immediately": Mutant(
        seeing(due_immediately), "two attempts", "a failure is not repeated before it is due"
    ),
    "release still counts": Mutant(Rules(settle=release_still_counts), "rerun", "a released attempt does not count"),
    "failure deletes the record": Mutant(Rules(settle=failure_deletes), "rerun", "only purge deletes", GROW),
    "cycle per attempt": Mutant(Rules(claim=cycle_per_attempt), "rerun", CYCLE, CYCLE),
    "release begins a new cycle": Mutant(
        Rules(settle=release_begins_a_new_cycle), "verify meets rerun", "an owner keeps token, nonce and cycle", CYCLE
    ),
    # resolving
    "resolved whatever was seen": Mutant(
        settling(resolved_whatever_was_seen), "rerun", "resolve applies only to the parked record that the operator saw"
    ),
    "resolving spares the late owner": Mutant(
        Rules(settle=resolving_spares_the_late_owner), "rerun", "resolving cuts the late owner off"
    ),
    "not applied counts as applied": Mutant(
        Rules(settle=not_applied_counts_as_applied),
        "rerun",
        "a record resolved as not applied or abandoned is a failure",
    ),
}

"""Describe a record in plain sentences: what happened, by whom, when, until when, and what a delivery does now."""

from __future__ import annotations

from collections.abc import Callable

from onceward.client.base import FUNCTION_FIELD
from onceward.engine.lock_record import is_lock
from onceward.protocol.cells import attempts_used_up
from onceward.protocol.hints import cli_command, resolve_hint
from onceward.protocol.message_note import BODY, MESSAGE, QUEUE, is_parked_message
from onceward.protocol.note import SAGA, user_notes
from onceward.protocol.reasons import DEFAULT_REASONS, Reasons
from onceward.protocol.record import AfterCrash, Record
from onceward.protocol.resolved import is_abandoned, is_resolved_as_applied
from onceward.protocol.transitions import Row, row_of
from onceward.protocol.unstored import unstored_reason
from onceward.results.codec import ENCODED_NONE
from onceward.sagas.decisions import is_requeued

from .times import moment, span

RUNS_AS_NEW_WORK = "A delivery now runs it as new work."


def sentences(record: Record, now: int, reasons: Reasons = DEFAULT_REASONS) -> list[str]:
    """Return sentences about the record at the store's time `now`. `reasons` are those of its operation, if known."""
    row = row_of(record, now)
    if row is Row.PARKED and is_parked_message(record):
        return _parked_message(record, now)
    if is_lock(record) and row in _LOCK_EXPLANATIONS:
        return _LOCK_EXPLANATIONS[row](record, now)
    lines = _EXPLANATIONS[row](record, now)
    word = reasons.customised().get(_OUTCOMES.get(row, ""))
    if word is not None:
        lines.append(f"Its callers get the reason {word!r}.")
    if _has_payload(record) and row not in (Row.NEWER, *_EXPIRED_ROWS):
        lines.append("A delivery with the same key but a different payload is refused as a mismatch.")
    noted = user_notes(record.note)
    if noted:
        lines.append("Notes: " + ", ".join(f"{name} = {value}" for name, value in sorted(noted.items())) + ".")
    return lines


def _has_payload(record: Record) -> bool:
    """Return whether the call had a payload beyond its key. The name of the function passed to `run` does not count."""
    return bool(record.fingerprint) and any(name != FUNCTION_FIELD for name in record.arguments)


def _owner(record: Record) -> str:
    return record.owner or "an unknown owner"


def _ago(instant: int, now: int) -> str:
    return f"{span(now - instant)} ago ({moment(instant)})"


def _running(record: Record, now: int) -> list[str]:
    claimed = f"{_owner(record)} holds it: attempt {record.attempt}, claimed {_ago(record.claimed_at, now)}."
    if record.lease_until is None:
        return [claimed, "It is claimed inside a transaction, without a lease: only its owner can end it."]
    left = span(record.lease_until - now)
    if clock_set_back(record, now):
        return [claimed, *_lasts_too_long(record, now)]
    return [
        claimed,
        f"Its lease was renewed {_ago(record.renewed_at, now)} and expires in {left}, unless it is renewed again.",
        "A delivery now waits for it, or gets the outcome 'running'; nothing runs twice.",
    ]


def clock_set_back(record: Record, now: int) -> int:
    """Return by how many µs the store's clock is behind the last renewal of this lease; 0 if it is not."""
    return max(0, record.renewed_at - now) if record.lease_until is not None else 0


def _lasts_too_long(record: Record, now: int) -> list[str]:
    set_back, left = span(clock_set_back(record, now)), span((record.lease_until or now) - now)
    return [
        f"The store's clock was set back by at least {set_back}, so its lease lasts too long: {left}.",
        f"If that owner is gone: `{cli_command('release', record.key)} --force`, or wait until then.",
    ]


def _lapsed(record: Record, now: int) -> list[str]:
    if is_requeued(record):
        since = (
            f"{_owner(record)} made it runnable again {_ago(record.renewed_at, now)}, "
            "and it has not been delivered since."
        )
        return [since, _next_delivery(record), "It waits for a delivery, or for a recovery worker: onceward recover."]
    silent = f"{_owner(record)} stopped responding in attempt {record.attempt}: it last renewed its lease "
    silent += f"{_ago(record.renewed_at, now)}, and the lease expired {_ago(record.lease_until or now, now)}."
    lines = [
        silent,
        _next_delivery(record),
        "If that owner is still alive, it can complete it until a delivery arrives.",
    ]
    if record.after_crash is not AfterCrash.RERUN and not record.note.get(SAGA):
        lines.append(f"If no delivery arrives, find out whether the effect happened, then: {resolve_hint(record.key)}.")
    return lines


def _released(record: Record, _now: int) -> list[str]:
    return [f"{_owner(record)} released it without running it.", _next_delivery(record)]


def _next_delivery(record: Record) -> str:
    if record.note.get(SAGA):
        return "A delivery now continues where its journal ends; an interrupted step is settled first."
    if record.after_crash is AfterCrash.PARK:
        return "A delivery now parks it and runs nothing: it is unknown whether the effect happened."
    if record.after_crash is AfterCrash.VERIFY:
        return "A delivery now calls verify to check whether the effect happened, and runs it only if it did not."
    if attempts_used_up(record.attempt, record.max_attempts):
        return f"A delivery now parks it: attempt {record.attempt} was the last one allowed."
    return f"A delivery now takes it over and runs it again, as attempt {record.attempt + 1}."


def _error(record: Record) -> str:
    return f"{record.error_type}: {record.error}" if record.error_type else "no error was recorded"


def _made_claimable(record: Record, now: int) -> list[str]:
    """Describe work that an operator made claimable. The record does not hold the number of the attempt that failed."""
    return [
        f"{_owner(record)} claimed the last attempt {_ago(record.claimed_at, now)}. It failed: {_error(record)}.",
        f"An operator made it claimable {_ago(record.updated_at, now)}, and it has not been delivered since.",
        f"A delivery now runs it again, as attempt {record.attempt + 1}.",
    ]


def _failed(record: Record, now: int) -> list[str]:
    if not record.nonce and record.retry_at is not None:
        return _made_claimable(record, now)
    lines = [f"Attempt {record.attempt} by {_owner(record)} failed {_ago(record.updated_at, now)}: {_error(record)}."]
    if record.retry_at is not None and record.retry_at > now:
        lines.append(
            f"A delivery now is refused; one after {moment(record.retry_at)} (in {span(record.retry_at - now)}) "
            "runs it again."
        )
    elif attempts_used_up(record.attempt, record.max_attempts):
        lines.append(f"A delivery now is refused: all {record.max_attempts} attempts are used.")
    else:
        lines.append(f"A delivery now runs it again, as attempt {record.attempt + 1}.")
    return lines


def _failed_final(record: Record, now: int) -> list[str]:
    since = _ago(record.updated_at, now)
    if is_abandoned(record):
        return [
            f"An operator abandoned it {since}, after attempt {record.attempt} by {_owner(record)}: {_error(record)}.",
            f"A delivery now is refused, {_until(record, now)}. It is settled: nothing needs to be done.",
        ]
    return [
        f"Attempt {record.attempt} by {_owner(record)} failed permanently {since}: {_error(record)}.",
        f"A delivery now is refused, {_until(record, now)}.",
        f"To let it run again: `{cli_command('retry', record.key)}`.",
    ]


def _until(record: Record, now: int) -> str:
    if record.valid_until is None:
        return "forever"
    return f"until {moment(record.valid_until)} (for another {span(record.valid_until - now)})"


def _completed(record: Record, now: int) -> list[str]:
    result = "gets the stored result"
    if not record.stored or record.result is None:
        reason = unstored_reason(record.note)
        result = f"gets no result: none was stored, because {reason}" if reason else "gets no result: none was stored"
    ended = f"Completed {_ago(record.updated_at, now)} by {_owner(record)}, in attempt {record.attempt}."
    if is_resolved_as_applied(record):
        when = _ago(record.updated_at, now)
        ended = f"An operator resolved attempt {record.attempt} by {_owner(record)} as applied {when}."
        if record.result == ENCODED_NONE:
            result = "gets null, or ResultNotStored (HTTP: status 410) if the declared type excludes null"
    lines = [
        ended,
        f"A delivery now is skipped and {result}, {_until(record, now)}.",
    ]
    if record.slide:
        lines.append(f"The window slides: each delivery extends it to {span(record.slide)} after that delivery.")
    return lines


def _expired(record: Record, now: int) -> list[str]:
    ended = _ago(record.valid_until or now, now)
    return [f"It was {record.state} by {_owner(record)}, but the record expired {ended}.", RUNS_AS_NEW_WORK]


def _parked(record: Record, now: int) -> list[str]:
    which = f"attempt {record.attempt} by {_owner(record)}"
    if record.note.get(SAGA):
        return [
            f"Parked {_ago(record.updated_at, now)}: {_error(record)}.",
            "A delivery now runs nothing and gets the outcome 'parked', until an operator resolves it.",
            f"Record how the step that blocks it ended: {resolve_hint(record.key)}.",
            f"To retry it: `{cli_command('retry', record.key)}`.",
        ]
    return [
        f"Parked {_ago(record.updated_at, now)}: it is unknown whether {which} had its effect. {_error(record)}.",
        "A delivery now runs nothing and gets the outcome 'parked', until an operator resolves it.",
        f"Find out, then: {resolve_hint(record.key)}.",
        *_queue_message(record),
    ]


def _queue_message(record: Record) -> list[str]:
    """Explain that the broker does not redeliver: the message was settled when the work was parked."""
    if QUEUE not in record.note or MESSAGE not in record.note:
        return []
    name = record.note[MESSAGE] or "without an id"
    settled = f"It was message {name} of {record.note[QUEUE]}, which was settled."
    return [
        settled,
        "If you resolve it as not applied, it runs when the message is sent again, or by a recovery worker.",
    ]


def _parked_message(record: Record, now: int) -> list[str]:
    name = record.note[MESSAGE] or "without an id"
    return [
        f"Parked {_ago(record.updated_at, now)}: message {name} of {record.note[QUEUE]}. {_error(record)}.",
        "It was acknowledged, because there is no dead letter queue: the broker does not redeliver it.",
        "This record only describes the message; resolving it runs nothing and does not affect deliveries.",
        "Fix the cause, and send the message again if it is still needed.",
        f"Then delete this record: `{cli_command('forget', record.key)}`.",
        f"Notes: {BODY} = {record.note[BODY]}.",
    ]


def _free(_record: Record, _now: int) -> list[str]:
    return ["The key is free.", RUNS_AS_NEW_WORK]


def _newer(record: Record, _now: int) -> list[str]:
    return [f"Written by a newer Onceward (layout {record.min_reader}); this version cannot use it. Upgrade."]


_EXPIRED_ROWS = (Row.FREE, Row.COMPLETED_EXPIRED, Row.FAILED_FINAL_EXPIRED, Row.FAILED_RETRYABLE_EXPIRED)
_EXPLANATIONS: dict[Row, Callable[[Record, int], list[str]]] = {
    Row.FREE: _free,
    Row.NEWER: _newer,
    Row.PENDING_LIVE: _running,
    Row.PENDING_LAPSED: _lapsed,
    Row.RELEASED_UNVERIFIED: _released,
    Row.FAILED_RETRYABLE: _failed,
    Row.FAILED_FINAL: _failed_final,
    Row.COMPLETED: _completed,
    Row.PARKED: _parked,
    Row.COMPLETED_EXPIRED: _expired,
    Row.FAILED_FINAL_EXPIRED: _expired,
    Row.FAILED_RETRYABLE_EXPIRED: _expired,
}


_OUTCOMES: dict[Row, str] = {
    Row.PENDING_LIVE: "running",
    Row.FAILED_RETRYABLE: "failed",
    Row.FAILED_FINAL: "failed",
    Row.COMPLETED: "done",
    Row.PARKED: "parked",
}
"""The outcome of a delivery for each row, by the name of its reason."""


def _locked(record: Record, now: int) -> list[str]:
    holder = f"It is a lock, held by {_owner(record)} since {_ago(record.claimed_at, now)}, with token {record.token}."
    left = span((record.lease_until or now) - now)
    if clock_set_back(record, now):
        return [holder, *_lasts_too_long(record, now)]
    return [holder, f"Its lease was renewed {_ago(record.renewed_at, now)} and expires in {left}; then it is free."]


def _lock_lapsed(record: Record, now: int) -> list[str]:
    owner = f"It is a lock whose owner, {_owner(record)}, stopped responding: it last renewed its lease "
    return [f"{owner}{_ago(record.renewed_at, now)}.", "It is free: the next caller can acquire it."]


def _unlocked(record: Record, now: int) -> list[str]:
    return [f"It is a lock, and free. {_owner(record)} held it last, until {_ago(record.updated_at, now)}."]


_LOCK_EXPLANATIONS: dict[Row, Callable[[Record, int], list[str]]] = {
    Row.PENDING_LIVE: _locked,
    Row.PENDING_LAPSED: _lock_lapsed,
    Row.COMPLETED: _unlocked,
    Row.COMPLETED_EXPIRED: _unlocked,
    Row.FAILED_RETRYABLE: _unlocked,
    Row.FAILED_RETRYABLE_EXPIRED: _unlocked,
}
"""Sentences about locks, which have no attempts, results or windows."""

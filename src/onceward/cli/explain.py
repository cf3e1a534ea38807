"""A record in plain sentences: what happened, by whom, since when, until when, and what a delivery would meet now."""

from __future__ import annotations

from collections.abc import Callable

from onceward.client.base import FUNCTION_FIELD
from onceward.engine.lock_record import is_lock
from onceward.protocol.cells import attempts_used_up
from onceward.protocol.hints import resolve_hint, cli_command
from onceward.protocol.note import SAGA, user_notes
from onceward.protocol.reasons import DEFAULT_REASONS, Reasons
from onceward.protocol.record import AfterCrash, Record
from onceward.protocol.transitions import Row, row_of
from onceward.protocol.unstored import unstored_reason
from onceward.queues.message_note import BODY, MESSAGE, QUEUE, is_parked_message
from onceward.sagas.decisions import is_requeued

from .display import moment, span

AGAIN = "A delivery now runs it as new work."


def sentences(record: Record, now: int, reasons: Reasons = DEFAULT_REASONS) -> list[str]:
    """The story of the record at the store's time `now`. `reasons` are the words of its operation, as far as known."""
    row = row_of(record, now)
    if row is Row.PARKED and is_parked_message(record):
        return _set_aside(record, now)
    if is_lock(record) and row in _OF_LOCKS:
        return _OF_LOCKS[row](record, now)
    story = _STORIES[row](record, now)
    word = reasons.chosen().get(_OUTCOMES.get(row, ""))
    if word is not None:
        story.append(f"Its callers are told {word!r}.")
    if _is_compared(record) and row not in (Row.NEWER, *_OVER):
        story.append("A delivery with the same key but another payload is refused as a mismatch.")
    noted = user_notes(record.note)
    if noted:
        story.append("Noted: " + ", ".join(f"{name} = {value}" for name, value in sorted(noted.items())) + ".")
    return story


def _is_compared(record: Record) -> bool:
    """Whether the call had anything beyond its key. Which function `run` was given is no payload to a person."""
    return bool(record.fingerprint) and any(name != FUNCTION_FIELD for name in record.arguments)


def _owner(record: Record) -> str:
    return record.owner or "an owner that left no name"


def _ago(instant: int, now: int) -> str:
    return f"{span(now - instant)} ago ({moment(instant)})"


def _live(record: Record, now: int) -> list[str]:
    begun = f"{_owner(record)} is working on it: attempt {record.attempt}, claimed {_ago(record.claimed_at, now)}."
    if record.lease_until is None:
        return [begun, "It is held without a lease, inside of a transaction: nothing ends it but its owner."]
    left = span(record.lease_until - now)
    return [
        begun,
        f"Its lease was renewed {_ago(record.renewed_at, now)} and lasts {left} more, longer if it is renewed again.",
        "A delivery now waits for it, or is told that it is running; nothing runs twice.",
    ]


def _lapsed(record: Record, now: int) -> list[str]:
    if is_requeued(record):
        since = f"{_owner(record)} let it go on {_ago(record.renewed_at, now)}, and nobody has delivered it since."
        return [since, _what_next(record), "It waits for that, or for a recovery worker: onceward recover."]
    silent = f"{_owner(record)} fell silent in attempt {record.attempt}: it last renewed its lease "
    silent += f"{_ago(record.renewed_at, now)}, and the lease ended {_ago(record.lease_until or now, now)}."
    return [silent, _what_next(record), "If that owner is alive after all, it may still complete until then."]


def _handed_back(record: Record, _now: int) -> list[str]:
    return [f"{_owner(record)} handed it back without an attempt of its own.", _what_next(record)]


def _what_next(record: Record) -> str:
    if record.note.get(SAGA):
        return "A delivery now goes on where its journal ends; a step that was cut off is settled first."
    if record.after_crash is AfterCrash.PARK:
        return "A delivery now parks it and runs nothing: nobody knows whether the effect happened."
    if record.after_crash is AfterCrash.VERIFY:
        return "A delivery now asks verify whether the effect happened, and runs it only if it did not."
    if attempts_used_up(record.attempt, record.max_attempts):
        return f"A delivery now parks it: attempt {record.attempt} was the last one allowed."
    return f"A delivery now takes it over and runs it again, as attempt {record.attempt + 1}."


def _error(record: Record) -> str:
    return f"{record.error_type}: {record.error}" if record.error_type else "no error was recorded"


def _failed(record: Record, now: int) -> list[str]:
    story = [f"Attempt {record.attempt} by {_owner(record)} failed {_ago(record.updated_at, now)}: {_error(record)}."]
    if record.retry_at is not None and record.retry_at > now:
        story.append(
            f"A delivery now is refused; one from {moment(record.retry_at)} on (in {span(record.retry_at - now)}) "
            "runs it again."
        )
    elif attempts_used_up(record.attempt, record.max_attempts):
        story.append(f"A delivery that allows {record.max_attempts} attempts is refused: none is left.")
    else:
        story.append(f"A delivery now runs it again, as attempt {record.attempt + 1}.")
    return story


def _refused(record: Record, now: int) -> list[str]:
    since = _ago(record.updated_at, now)
    return [
        f"Attempt {record.attempt} by {_owner(record)} failed for good {since}: {_error(record)}.",
        f"A delivery now is refused, {_until(record, now)}.",
        f"To let it run again: `{cli_command('retry', record.key)}`.",
    ]


def _until(record: Record, now: int) -> str:
    if record.valid_until is None:
        return "for ever"
    return f"until {moment(record.valid_until)} (for another {span(record.valid_until - now)})"


def _done(record: Record, now: int) -> list[str]:
    gets = "gets the stored result"
    if not record.stored or record.result is None:
        reason = unstored_reason(record.note)
        gets = f"gets no result: none was kept, because {reason}" if reason else "gets no result: none was kept"
    story = [
        f"Completed {_ago(record.updated_at, now)} by {_owner(record)}, in attempt {record.attempt}.",
        f"A delivery now is skipped and {gets}, {_until(record, now)}.",
    ]
    if record.slide:
        story.append(f"The window slides: each delivery moves its end to {span(record.slide)} from then.")
    return story


def _over(record: Record, now: int) -> list[str]:
    ended = _ago(record.valid_until or now, now)
    return [f"It was {record.state} by {_owner(record)}, but that answers for nothing since {ended}.", AGAIN]


def _parked(record: Record, now: int) -> list[str]:
    which = f"attempt {record.attempt} by {_owner(record)}"
    if record.note.get(SAGA):
        return [
            f"Parked {_ago(record.updated_at, now)}: {_error(record)}.",
            "A delivery now runs nothing and is told that it is parked, until a person helps.",
            f"Say how the step ended that stands in the way: {resolve_hint(record.key)}.",
            f"To try it again: `{cli_command('retry', record.key)}`.",
        ]
    return [
        f"Parked {_ago(record.updated_at, now)}: nobody knows whether {which} had its effect. {_error(record)}.",
        "A delivery now runs nothing and is told that it is parked, until somebody says how it ended.",
        f"Find out, then: {resolve_hint(record.key)}.",
        *_of_queue(record),
    ]


def _of_queue(record: Record) -> list[str]:
    """No broker brings it again: the message was settled when the work was parked."""
    if QUEUE not in record.note or MESSAGE not in record.note:
        return []
    came = f"It came as message {record.note[MESSAGE] or 'without an id'} of {record.note[QUEUE]}, which was settled: "
    return [f"{came}resolved as not applied, it runs when the message is sent again, or by a recovery worker."]


def _set_aside(record: Record, now: int) -> list[str]:
    name = record.note[MESSAGE] or "without an id"
    return [
        f"Set aside {_ago(record.updated_at, now)}: message {name} of {record.note[QUEUE]}. {_error(record)}.",
        "It was acknowledged, because there is no dead letter queue: the broker does not bring it again.",
        "This record is a note of it, not its work: deliveries are judged by that, and to resolve this runs nothing.",
        "Mend what is wrong, and send the message again if it is still wanted.",
        f"Then put the note away: `{cli_command('forget', record.key)}`.",
        f"Noted: {BODY} = {record.note[BODY]}.",
    ]


def _free(_record: Record, _now: int) -> list[str]:
    return ["The key is free.", AGAIN]


def _newer(record: Record, _now: int) -> list[str]:
    return [f"Written by a newer Onceward (layout {record.min_reader}); this one leaves it alone. Upgrade."]


_OVER = (Row.FREE, Row.COMPLETED_EXPIRED, Row.FAILED_FINAL_EXPIRED, Row.FAILED_RETRYABLE_EXPIRED)
_STORIES: dict[Row, Callable[[Record, int], list[str]]] = {
    Row.FREE: _free,
    Row.NEWER: _newer,
    Row.PENDING_LIVE: _live,
    Row.PENDING_LAPSED: _lapsed,
    Row.RELEASED_UNVERIFIED: _handed_back,
    Row.FAILED_RETRYABLE: _failed,
    Row.FAILED_FINAL: _refused,
    Row.COMPLETED: _done,
    Row.PARKED: _parked,
    Row.COMPLETED_EXPIRED: _over,
    Row.FAILED_FINAL_EXPIRED: _over,
    Row.FAILED_RETRYABLE_EXPIRED: _over,
}


_OUTCOMES: dict[Row, str] = {
    Row.PENDING_LIVE: "running",
    Row.FAILED_RETRYABLE: "failed",
    Row.FAILED_FINAL: "failed",
    Row.COMPLETED: "done",
    Row.PARKED: "parked",
}
"""Which outcome a delivery meets in which row, by the name of its reason."""


def _locked(record: Record, now: int) -> list[str]:
    held = f"It is a lock, held by {_owner(record)} since {_ago(record.claimed_at, now)}, with token {record.token}."
    left = span((record.lease_until or now) - now)
    return [held, f"Its lease was renewed {_ago(record.renewed_at, now)} and lasts {left} more; then it is free."]


def _silent(record: Record, now: int) -> list[str]:
    silent = f"It is a lock whose owner, {_owner(record)}, fell silent: it last renewed its lease "
    return [f"{silent}{_ago(record.renewed_at, now)}.", "It is free: whoever wants it takes it over."]


def _unlocked(record: Record, now: int) -> list[str]:
    return [f"It is a lock, and free. {_owner(record)} had it last, until {_ago(record.updated_at, now)}."]


_OF_LOCKS: dict[Row, Callable[[Record, int], list[str]]] = {
    Row.PENDING_LIVE: _locked,
    Row.PENDING_LAPSED: _silent,
    Row.COMPLETED: _unlocked,
    Row.COMPLETED_EXPIRED: _unlocked,
    Row.FAILED_RETRYABLE: _unlocked,
    Row.FAILED_RETRYABLE_EXPIRED: _unlocked,
}
"""What a lock has to tell: it has no attempts, no result and no window."""

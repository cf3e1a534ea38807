"""The actions of operators: which records each of them may change, and the request that changes one.

`plan` is a pure function of the record. The store compares token and state again in the step that makes the change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from onceward.engine.records import NO_RESPONSE, is_resolvable
from onceward.errors import ConfigurationError, OncewardError
from onceward.protocol.hints import cli_command, resolve_hint
from onceward.protocol.message_note import is_parked_message
from onceward.protocol.note import HTTP_REQUEST, KIND, SAGA, note_without_input
from onceward.protocol.policy import DEFAULT_WINDOW
from onceward.protocol.record import AfterCrash, Record, RecordState
from onceward.protocol.requests import Resolution, Resolve, Validity
from onceward.protocol.resolved import is_abandoned
from onceward.protocol.transitions import Row, row_of
from onceward.protocol.window import Window, parse_window, recorded_window
from onceward.results.codec import PLAIN, Encoded, is_encrypted
from onceward.results.stored_input import stored_input_bytes
from onceward.sagas.admin import (
    compensation_request,
    may_be_abandoned,
    refuse_to_forget,
    resolve_request,
    retry_request,
)
from onceward.sagas.decisions import SagaDecision, resolve_open_step
from onceward.sagas.journal import journal_from
from onceward.sagas.step_context import associated_data

from .record_view import state_text

Verb = Literal["release", "retry", "resolve", "forget"]
FindingName = Literal["applied", "not_applied", "abandon"]

ALIVE: Final = "its lease has not expired, so its owner may be alive → wait, or if that process is gone, force it"
CHANGED: Final = "it was changed in the meantime → inspect it again"
ABANDONED: Final = "an operator abandoned it, so that it does not run again → if it must run after all, force it"
ONLY_FORGET: Final = "it describes a message, not work: it can only be forgotten"
NEWER: Final = "it was written by a newer Onceward → upgrade"


class Action(Struct, frozen=True, kw_only=True):
    """What an operator does to records.

    - `release`: let a PENDING record whose owner is dead run again.
    - `retry`: make a FAILED record claimable now; let a saga continue.
    - `resolve`: record how the attempt ended, if it is PARKED or its owner is dead: `finding` is applied, not_applied
      or abandon. With `undo`, a saga is undone.
    - `forget`: free the key, so that the next delivery runs as new work.

    `force` includes records with a live owner, and lets abandoned work run again. `result` is what deliveries get after
    `resolve` as applied, and `window` how long they get it. Without `window`, it is the window of the work, or 24 hours
    if it is unknown.
    """

    verb: Verb
    """Which of the four changes to make."""
    finding: FindingName | None = None
    undo: bool = False
    force: bool = False
    result: Any = None
    window: str = ""

    @property
    def name(self) -> str:
        """The action as one word, as it appears in URLs: `resolve-not-applied`."""
        ending = "undo" if self.undo else (self.finding or "").replace("_", "-")
        return f"{self.verb}-{ending}" if ending else self.verb

    @property
    def detail(self) -> str:
        """What the audit trail notes beside the verb."""
        if self.verb == "resolve":
            return f"{self.finding}, undo" if self.undo else str(self.finding)
        return "forced" if self.force else ""


_DESCRIBED: Final = {
    Action(verb="retry"): "Make it claimable now: the next delivery runs it again.",
    Action(verb="release"): "Its owner is dead and the effect did not happen: the next delivery runs it again.",
    Action(verb="resolve", finding="applied"): "It happened: deliveries get the result, and nothing runs again.",
    Action(verb="resolve", finding="not_applied"): "It did not happen: the next delivery runs it.",
    Action(verb="resolve", finding="abandon"): "It did not happen, and must not run again.",
    Action(verb="resolve", finding="not_applied", undo=True): "Undo the steps that the saga has done.",
    Action(verb="forget"): "Free the key: the next delivery runs as new work.",
}
ACTIONS: Final = {action.name: action for action in _DESCRIBED}
"""Every action, by the name that URLs and tools use."""

DESCRIPTIONS: Final = {action.name: text for action, text in _DESCRIBED.items()}
"""What each action does, for buttons and tools."""


class ActionRefused(Exception):
    """The record does not allow the action. `usage`: the action itself does not fit this kind of record."""

    def __init__(self, reason: str, *, usage: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.usage = usage


class Forget(Struct, frozen=True):
    """The request that frees a key."""

    id: bytes
    force: bool


def checked(action: Action) -> Action:
    """Return the action if its options fit together; raise ConfigurationError if not."""
    if (action.verb == "resolve") != (action.finding is not None):
        raise ConfigurationError(
            f"{action.verb} {'needs' if action.verb == 'resolve' else 'takes no'} finding",
            hint='resolve with finding="applied", "not_applied" or "abandon"',
        )
    if action.undo and action.finding != "not_applied":
        raise ConfigurationError("undo requires finding='not_applied'")
    if action.result is not None and action.finding != "applied":
        raise ConfigurationError("a result requires finding='applied'")
    if action.window:
        parse_window(action.window)
    return action


Encode = Callable[[Any, Record], Encoded]
"""Encodes the result of a resolved record."""


def encode_plain(value: Any, record: Record) -> Encoded:
    """Encode the result as plain values."""
    return PLAIN.encode(value, record.id, record.cycle)


def plan(
    action: Action, record: Record, now: int, encode: Encode = encode_plain, declared: Window | None = None
) -> Resolve | Forget:
    """Return the request for this record, or raise ActionRefused.

    `encode` encodes the result of `resolve`. `declared` is the window of the operation, if it is known; the
    window that the claim noted on the record takes precedence.
    """
    try:
        if action.verb == "resolve":
            window = parse_window(action.window or recorded_window(record) or declared or DEFAULT_WINDOW)
            return _resolve(action, record, now, encode, window.validity(now))
        return _OTHERS[action.verb](action, record, now)
    except OncewardError as error:
        raise ActionRefused(str(error)) from error


def allows(action: Action, record: Record, now: int, encode: Encode = encode_plain) -> str | None:
    """Return None if the record allows the action, or why it does not."""
    if not is_offered(action, record):
        return ONLY_FORGET
    try:
        plan(action, record, now, encode)
    except ActionRefused as refusal:
        return refusal.reason
    return None


def _release(action: Action, record: Record, now: int) -> Resolve:
    row = row_of(record, now)
    if row is Row.RELEASED_UNVERIFIED:
        raise ActionRefused("it was already released: the next delivery runs it")
    if row not in (Row.PENDING_LIVE, Row.PENDING_LAPSED):
        raise ActionRefused(f"there is nothing to release: it is {state_text(record, now)}, not PENDING")
    if row is Row.PENDING_LIVE and not action.force:
        raise ActionRefused(ALIVE)
    may_have_happened = record.after_crash is not AfterCrash.RERUN and not record.note.get(SAGA)
    if may_have_happened and not action.force:
        raise ActionRefused(
            f"its worker stopped, and the effect may have happened (after_crash={record.after_crash.name.lower()}) "
            f"→ find out, then {resolve_hint(record.key)}; to run it again anyway, use force"
        )
    return Resolve(
        record.id,
        record.token,
        Resolution.NOT_APPLIED,
        state_seen=RecordState.PENDING,
        force=row is Row.PENDING_LIVE,
    )


def _retry(action: Action, record: Record, now: int) -> Resolve:
    if record.note.get(SAGA):
        return retry_request(record, now)
    if row_of(record, now) not in (Row.FAILED_RETRYABLE, Row.FAILED_FINAL):
        raise ActionRefused(f"there is nothing to retry: it is {state_text(record, now)}, not FAILED")
    if is_abandoned(record) and not action.force:
        raise ActionRefused(ABANDONED)
    return Resolve(record.id, record.token, Resolution.NOT_APPLIED, state_seen=RecordState.FAILED)


def _resolve(action: Action, record: Record, now: int, encode: Encode, validity: Validity) -> Resolve:
    resolution = Resolution(str(action.finding))
    abandons = action.undo or resolution is Resolution.ABANDON
    may_be_resolved = is_resolvable(record, now) and (record.state is RecordState.PARKED or not record.note.get(SAGA))
    if not may_be_resolved and not (abandons and may_be_abandoned(record, now)):
        if row_of(record, now) is Row.PENDING_LIVE:
            raise ActionRefused("there is nothing to resolve: its lease has not expired, so its worker may finish it")
        raise ActionRefused(f"there is nothing to resolve: it is {state_text(record, now)}, not PARKED")
    if action.undo and not record.note.get(SAGA):
        raise ActionRefused("it is not a saga: there is nothing to undo", usage=True)
    if action.undo:
        return compensation_request(record, now, validity)
    if record.note.get(SAGA):
        return resolve_request(record, _saga_decision(record, resolution, action.result), validity)
    request = Resolve(record.id, record.token, resolution, validity=validity, state_seen=record.state)
    if resolution is Resolution.APPLIED:
        if action.result is not None and record.note.get(KIND) == HTTP_REQUEST:
            raise ActionRefused(NO_RESPONSE, usage=True)
        encoded = encode(action.result, record)
        stored = encoded.data is not None
        if not stored and encode is encode_plain:
            raise ActionRefused(f"the result cannot be stored: {encoded.reason}", usage=True)
        note = note_without_input(record.note)
        request = replace(request, result=encoded.data, digest=encoded.digest, stored=stored, note=note)
    return request


def _saga_decision(record: Record, resolution: Resolution, value: Any) -> SagaDecision:
    """Return the decision about the step that blocks the saga.

    Refuse if its results are encrypted: the program would refuse a plain result.
    """
    journal = journal_from(record.note)
    line = journal.open_step if journal is not None else None
    if journal is not None and resolution is Resolution.ABANDON:
        return resolve_open_step(journal, resolution)
    if journal is None or line is None:
        raise ActionRefused(f"no step of this saga needs to be resolved → {cli_command('retry', record.key)}")
    if resolution is not Resolution.APPLIED:
        return resolve_open_step(journal, resolution)
    results = [one.result for one in journal.entries if one.result is not None]
    if any(map(is_encrypted, [*results, stored_input_bytes(record.note)])):
        raise ActionRefused(
            "the results of this saga are encrypted → resolve it in Python: saga.resolve(applied(…), …)", usage=True
        )
    encoded = PLAIN.encode(value, associated_data(record.id, journal.cycle, line.name))
    if encoded.data is None:
        raise ActionRefused(f"the result cannot be stored: {encoded.reason}", usage=True)
    return resolve_open_step(journal, resolution, encoded.data)


def _forget(action: Action, record: Record, now: int) -> Forget:
    if record.state is RecordState.FREE:
        raise ActionRefused("the key is already free")
    if not action.force:
        if row_of(record, now) is Row.PENDING_LIVE:
            raise ActionRefused(ALIVE)
        refuse_to_forget(record, record.key)
    return Forget(record.id, action.force)


_OTHERS: Final[dict[str, Callable[[Action, Record, int], Resolve | Forget]]] = {
    "release": _release,
    "retry": _retry,
    "forget": _forget,
}


def is_offered(action: Action, record: Record) -> bool:
    """Return whether to offer the action at all. A parked message describes no work: it can only be forgotten."""
    return action.verb == "forget" or not is_parked_message(record)

"""Change one or many records: first a preview, then exactly what the preview showed.

`preview` reads the records and decides for each whether the action is allowed. `apply` changes only the allowed ones,
and only those whose token and state are still the same: the store compares them in the step that makes the change and
writes the audit entry. So nothing changes that the operator has not seen.
"""

from __future__ import annotations

import base64
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from secrets import token_bytes
from typing import Final

import msgspec
from msgspec import Struct

from onceward.errors import ConfigurationError
from onceward.protocol.audit import AuditSignature, signature
from onceward.protocol.note import SAGA
from onceward.protocol.ports import Store
from onceward.protocol.record import Record, RecordState
from onceward.protocol.requests import Answer, ExpectedRecord, Resolve, Verdict
from onceward.protocol.window import Window
from onceward.sagas.admin import requeue

from .actions import (
    ALIVE,
    CHANGED,
    NEWER,
    ONLY_FORGET,
    Action,
    ActionRefused,
    Encode,
    Forget,
    allows,
    checked,
    encode_plain,
    is_offered,
    plan,
)
from .policy_text import declared_window
from .visible import ALL, Visible

MAX_TARGETS: Final = 1000
"""The largest number of records that one preview holds."""

BATCH: Final = 50
"""Records changed in one call: short enough not to block workers, and small steps of progress."""

TIMEOUT: Final = 10.0
MAX_ENCODED: Final = 1 << 20  # characters of an encoded preview


class Target(Struct, frozen=True, array_like=True):
    """A record as the operator saw it. If its `token` or `state` has changed since, it is left alone.

    `id`, `scope` and `key` identify it.
    """

    id: bytes
    token: int
    state: RecordState
    scope: str
    key: str


class NotAllowed(Struct, frozen=True):
    """A record that the action does not change, and why."""

    target: Target
    reason: str


class Preview(Struct, frozen=True):
    """What an `action` would change (`targets`), and which records it would leave alone and why (`refused`).

    `more`: more records match than the limit; preview them after these are done.
    """

    action: Action
    targets: list[Target]
    refused: list[NotAllowed]
    more: bool = False

    @property
    def reasons(self) -> dict[str, int]:
        """How many records are not changed, by reason, the most frequent first."""
        return dict(Counter(one.reason for one in self.refused).most_common())

    def encode(self) -> str:
        """Return the preview as text for a form, without the refused records. `apply` checks every record again."""
        data = msgspec.msgpack.encode((self.action, self.targets))
        return base64.urlsafe_b64encode(zlib.compress(data)).decode("ascii")


def decode_preview(text: str) -> Preview:
    """Return the preview that `encode` returned. Raise ConfigurationError if the text is something else."""
    try:
        packed = base64.urlsafe_b64decode(text[:MAX_ENCODED])
        unpacked = zlib.decompressobj().decompress(packed, 4 * MAX_ENCODED)
        action, targets = msgspec.msgpack.decode(unpacked, type=tuple[Action, list[Target]])
    except (ValueError, RecursionError, zlib.error, msgspec.MsgspecError) as error:
        raise ConfigurationError("this is not a preview", hint="preview the action again") from error
    if len(targets) > MAX_TARGETS:
        raise ConfigurationError(f"a preview holds at most {MAX_TARGETS} records", hint="preview fewer")
    return Preview(checked(action), targets, [])


class Applied(Struct, frozen=True):
    """What an action has changed (`done`), and which records it left alone and why (`refused`)."""

    done: list[Target]
    refused: list[NotAllowed]

    @property
    def reasons(self) -> dict[str, int]:
        """How many records were left alone, by reason."""
        return dict(Counter(one.reason for one in self.refused).most_common())


OnProgress = Callable[[int, int], None]
"""Called after each batch with the number of processed records and of all."""


def target_of(record: Record) -> Target:
    return Target(record.id, record.token, record.state, record.scope, record.key)


def make_preview(
    action: Action, records: Sequence[Record], now: int, *, more: bool = False, encode: Encode = encode_plain
) -> Preview:
    """Decide for each record whether the action is allowed."""
    checked(action)
    targets: list[Target] = []
    refused: list[NotAllowed] = []
    for record in records:
        reason = allows(action, record, now, encode)
        if reason is None:
            targets.append(target_of(record))
        else:
            refused.append(NotAllowed(target_of(record), reason))
    return Preview(action, targets, refused, more)


async def apply(
    store: Store,
    preview: Preview,
    *,
    who: str,
    why: str = "",
    visible: Visible = ALL,
    on_progress: OnProgress | None = None,
    encode: Encode = encode_plain,
) -> Applied:
    """Change the records of the preview, in batches. Records that have changed since the preview are left alone."""
    action, total = checked(preview.action), len(preview.targets)
    detail = action.detail if total == 1 else ", ".join(filter(None, (action.detail, f"one of {total}")))
    signed = signature(action.verb, who, why, detail)
    done: list[Target] = []
    refused: list[NotAllowed] = []
    for start in range(0, total, BATCH):
        batch = preview.targets[start : start + BATCH]
        reasons = await _apply_batch(store, action, batch, signed, visible=visible, encode=encode)
        for target, reason in zip(batch, reasons, strict=True):
            if reason:
                refused.append(NotAllowed(target, reason))
            else:
                done.append(target)
        if on_progress is not None:
            on_progress(start + len(batch), total)
    return Applied(done, refused)


NOT_VISIBLE: Final = "it is outside the scopes and tenants that you may change"


async def _apply_batch(
    store: Store, action: Action, batch: Sequence[Target], signed: AuditSignature, *, visible: Visible, encode: Encode
) -> list[str]:
    """Change the records. Return for each an empty text, or why it was not changed."""
    answers = await store.read([target.id for target in batch], timeout=TIMEOUT)
    windows = await _declared_windows(store, action, answers)
    reasons = [""] * len(batch)
    requests: dict[int, Resolve | Forget] = {}
    records: dict[int, Record] = {}
    for number, (target, answer) in enumerate(zip(batch, answers, strict=True)):
        record = answer.record
        if record is None or (record.token, record.state) != (target.token, target.state):
            reasons[number] = CHANGED
        elif not visible.includes(record.scope):
            reasons[number] = NOT_VISIBLE
        elif not is_offered(action, record):
            reasons[number] = ONLY_FORGET
        else:
            try:
                declared = windows.get(record.scope)
                requests[number], records[number] = plan(action, record, answer.now, encode, declared), record
            except ActionRefused as refusal:
                reasons[number] = refusal.reason
    for number, verdict in (await _send(store, requests, records, signed)).items():
        reasons[number] = verdict_text(verdict)
    for number, request in requests.items():
        if not reasons[number] and isinstance(request, Resolve) and records[number].note.get(SAGA):
            await requeue(store, request, records[number], token_bytes(16), signed.who)
    return reasons


async def _declared_windows(store: Store, action: Action, answers: Sequence[Answer]) -> dict[str, Window | None]:
    """Return the windows that the operations of these records declare, if the action needs them, by scope."""
    if action.verb != "resolve" or action.window:
        return {}
    scopes = dict.fromkeys(answer.record.scope for answer in answers if answer.record is not None)
    return {scope: await declared_window(store, scope) for scope in scopes}


async def _send(
    store: Store, requests: dict[int, Resolve | Forget], records: dict[int, Record], signed: AuditSignature
) -> dict[int, Verdict]:
    settled = {number: one for number, one in requests.items() if isinstance(one, Resolve)}
    freed = {number: one for number, one in requests.items() if isinstance(one, Forget)}
    verdicts: dict[int, Verdict] = {}
    if settled:
        answers = await store.settle(list(settled.values()), timeout=TIMEOUT, signed=signed)
        verdicts |= {number: answer.verdict for number, answer in zip(settled, answers, strict=True)}
    if freed:
        seen = {records[number].id: ExpectedRecord(records[number].token, records[number].state) for number in freed}
        force = any(one.force for one in freed.values())
        answers = await store.forget(list(seen), force=force, timeout=TIMEOUT, seen=seen, signed=signed)
        verdicts |= {number: answer.verdict for number, answer in zip(freed, answers, strict=True)}
    return verdicts


def verdict_text(verdict: Verdict) -> str:
    """Return why the store did not change a record; "" if it did."""
    if verdict is Verdict.OK:
        return ""
    if verdict is Verdict.REFUSED:
        return ALIVE
    if verdict is Verdict.SKEW:
        return NEWER
    return CHANGED

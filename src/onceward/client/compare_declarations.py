"""Warn if a deployment changes the declaration of an operation, and explain the effect on existing keys.

Each operation's declaration is stored as the latest state of an entity, so it does not appear among the records. A
client reads all of them in one call when it opens the store, and writes those that are new or have changed. It compares
operations that are declared later before the next call.

Functions that share an operation of the table may be in different processes. Only what the table declares is the same
in all of them, so only that is compared.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec
from msgspec import Struct

from onceward.errors import OncewardError
from onceward.keys.fingerprint import fingerprint_key_id
from onceward.keys.key import Key, Scope, make_key
from onceward.operations.operation import Operation
from onceward.operations.payload import fingerprint_text
from onceward.protocol.capabilities import LatestStates
from onceward.protocol.duration import format_duration
from onceward.protocol.latest import EventDelivery, Retention
from onceward.protocol.operation_names import DECLARATION
from onceward.protocol.ordering import CONTENT_BYTES, position_of
from onceward.protocol.ports import Filter, Store

from .declarations import template_text

READ_TIMEOUT: Final = 2.0  # seconds; the first call of the process waits for it
WRITE_TIMEOUT: Final = 0.3  # seconds; a caller's own transaction may block writes
RETENTION: Final = Retention(0, 0)  # these states have no marks and are never deleted


class StoredDeclaration(Struct, frozen=True, forbid_unknown_fields=False):
    """The settings that affect existing keys if they change. All are stored, because `onceward resolve` uses them."""

    key: str
    fingerprint: str
    window: str
    after_crash: str
    max_attempts: int
    lease: str
    key_by_position: str = ""
    arguments: str = ""
    fingerprint_key: str = ""
    compared: tuple[str, ...] = ()  # which of SETTINGS; an earlier version stored none

    def changed(self, later: StoredDeclaration) -> list[str]:
        """Return the fields that another deployment changed, if the change affects existing keys."""
        compared = {"key", *self.compared, *later.compared}
        compared |= {name for name in MAY_BE_EMPTY if getattr(self, name) and getattr(later, name)}
        changed = [name for name in CONSEQUENCES if name in compared and getattr(self, name) != getattr(later, name)]
        if "key" in changed and self.key_by_position and self.key_by_position == later.key_by_position:
            changed.remove("key")  # a renamed parameter keeps its keys
        if "arguments" in changed and ("key" in changed or "fingerprint" in changed):
            changed.remove("arguments")  # explained by the other change
        return changed

    def texts(self, later: StoredDeclaration, name: str) -> tuple[str, str]:
        """Return both values of a changed field for the log. The stored HMAC of a fingerprint_key is not logged."""
        before, after = str(getattr(self, name)), str(getattr(later, name))
        if name != "fingerprint_key":
            return before, after
        secret = "<another secret>" if before != NO_KEY else "<secret>"
        return (before if before == NO_KEY else "<secret>"), (after if after == NO_KEY else secret)


NO_KEY: Final = "none"

SETTINGS: Final = ("fingerprint", "window", "after_crash", "max_attempts", "lease")
"""The settings that are compared. Of an operation of the table, only those that the table declares."""

MAY_BE_EMPTY: Final = ("arguments", "fingerprint_key")
"""Fields that are not compared if they are empty: an earlier version did not store them, or they do not apply."""

CONSEQUENCES: Final = {
    "key": "records under the old keys are no longer found, so work that they protect runs again if it is delivered "
    "→ deploy when no redelivery is expected, or keep the old key until the windows have ended",
    "fingerprint": "a delivery of an existing key may be refused as a mismatch, because its payload was hashed "
    "differently → keep the old fingerprint until the windows have ended, or pass version= to start with new keys",
    "arguments": "a delivery of an existing key may be refused as a mismatch, because its fingerprint covers all of "
    "these arguments → name those of the old payload in fingerprint=, or pass version= to start with new keys",
    "fingerprint_key": "until their windows end, deliveries of existing keys that have a fingerprint are refused as "
    "mismatches, even if their payload is the same → use the old fingerprint_key until the windows have ended, or pass "
    "version= to start with new keys",
    "window": "records that are completed keep their old window; only new ones get the new window",
    "after_crash": "it applies to existing keys from their next attempt; for an attempt that is running now, the "
    "stricter of both applies",
    "max_attempts": "it applies to existing keys from their next attempt, and counts the attempts made so far",
    "lease": "it applies to existing keys from their next attempt",
}
"""What the change of each field means for existing keys."""


def declaration_of(operation: Operation) -> StoredDeclaration:
    """Return what is stored about the operation. Of an operation of the table, omit what depends on the function."""
    policy, source, table = operation.policy, repr(operation.source), operation.table_settings
    by_position = template_text(operation, by_position=True) or source
    arguments = ", ".join(sorted(operation.payload.argument_names(operation.binding))) or "none"
    return StoredDeclaration(
        key=template_text(operation) or source,
        fingerprint=fingerprint_text(policy.fingerprint),
        window=str(policy.window),
        after_crash=policy.after_crash.name.lower(),
        max_attempts=policy.max_attempts,
        lease=format_duration(policy.lease),
        key_by_position=by_position if table is None else "",
        arguments=arguments if table is None else "",
        fingerprint_key=(fingerprint_key_id(operation.fingerprint_key) or NO_KEY)
        if _has_fingerprints(operation)
        else "",
        compared=SETTINGS if table is None else tuple(name for name in SETTINGS if name in table),
    )


def _has_fingerprints(operation: Operation) -> bool:
    """Return whether records of the operation may have fingerprints of payloads.

    A key of all arguments needs none, but a consumer that passes messages to this function uses their ids as keys.
    """
    return operation.uses_fingerprint or operation.is_keyed_by_all_arguments


async def compare(store: Store, states: LatestStates, operations: Sequence[Operation]) -> None:
    """Read all declarations in one call, log changes, and write those that are new or have changed."""
    keys = [make_key(Scope(one.scope.app, DECLARATION), one.scope.text) for one in operations]
    found = await states.read_latest([key.id for key in keys], timeout=READ_TIMEOUT)
    changed: list[EventDelivery] = []
    for operation, key, state in zip(operations, keys, found, strict=True):
        now = declaration_of(operation)
        before = None if state is None or state.value is None else decode_declaration(state.value)
        if before != now:
            changed.append(_delivery(key, now))
            if before is not None and before.changed(now) and await _has_records(store, operation):
                _warn(operation, before, now)
    if changed:
        await states.apply_events(changed, RETENTION, timeout=WRITE_TIMEOUT)


_decode = msgspec.json.Decoder(StoredDeclaration).decode


def decode_declaration(value: bytes) -> StoredDeclaration | None:
    """Return the stored declaration, or None if another version or program wrote something else."""
    try:
        return _decode(value)
    except (ValueError, RecursionError):  # a MsgspecError is a ValueError
        return None


def _delivery(key: Key, declared: StoredDeclaration) -> EventDelivery:
    value = msgspec.json.encode(declared)
    order = position_of(datetime.now(UTC)).order(hashlib.sha256(value).digest()[:CONTENT_BYTES])
    return EventDelivery(key.id, key.scope.text, key.text, order, value)


async def _has_records(store: Store, operation: Operation) -> bool:
    """Return whether the scope has records. If tenants are set per call, assume so: their scopes are not known here."""
    if operation.has_tenants:
        return True
    try:
        page = await store.scan(Filter(scope=operation.scope.text), cursor=None, limit=1, timeout=READ_TIMEOUT)
    except OncewardError:  # there are too many records to look through
        return True
    return bool(page.records)


def _warn(operation: Operation, before: StoredDeclaration, now: StoredDeclaration) -> None:
    import logging  # not at the top: it takes 5 % of our import time

    logger = logging.getLogger("onceward")
    for name in before.changed(now):
        old, new = before.texts(now, name)
        logger.warning(
            "%s was declared with %s=%s and is now declared with %s=%s: %s",
            operation.scope.text,
            name,
            old,
            name,
            new,
            CONSEQUENCES[name],
        )

"""The policy of a key in words: what its record says, and what its operation declared last."""

from __future__ import annotations

from onceward.client.compare_declarations import StoredDeclaration, decode_declaration
from onceward.keys.key import Scope, make_key, parse_scope
from onceward.protocol.operation_names import DECLARATION
from onceward.protocol.ports import Store
from onceward.protocol.record import AfterCrash, Record
from onceward.protocol.window import Window, window_from_text

from .times import moment, span

AFTER_CRASH = {
    AfterCrash.RERUN: "After a crash, the next delivery runs it again.",
    AfterCrash.VERIFY: "After a crash, `verify` checks first whether the effect happened.",
    AfterCrash.PARK: "After a crash, it is parked until an operator resolves it.",
}
TIMEOUT = 5.0


def record_policy(record: Record) -> list[str]:
    """Return what the record itself says about its policy."""
    lines = [AFTER_CRASH[record.after_crash]]
    if record.lease_until is not None:
        lines.append(f"Its last lease lasts {span(record.lease_until - max(record.renewed_at, record.claimed_at))}.")
    if record.max_attempts:
        lines.append(f"At most {record.max_attempts} attempts.")
    if record.slide:
        lines.append(f"Its window slides: each delivery extends it to {span(record.slide)}.")
    if record.valid_until is not None:
        lines.append(f"Its record is valid until {moment(record.valid_until)}.")
    return lines


def declared_policy(declared: StoredDeclaration) -> list[str]:
    """Return how the operation was declared by the last deployment."""
    attempts = f"at most {declared.max_attempts} attempts" if declared.max_attempts else "no limit of attempts"
    times = f"window {declared.window}, lease {declared.lease}"
    return [
        f"Declared key: {declared.key}; fingerprint: {declared.fingerprint}.",
        f"Declared: {times}, {attempts}; after a crash: {declared.after_crash}.",
    ]


async def declared_window(store: Store, scope: str) -> Window | None:
    """Return the window that the operation of this scope declares; None if it is unknown."""
    declared = await declaration_of(store, scope)
    return None if declared is None else window_from_text(declared.window)


async def declaration_of(store: Store, scope: str) -> StoredDeclaration | None:
    """Return how the operation of this scope was declared last; None if no deployment has stored it."""
    known = parse_scope(scope)
    if known is None or store.latest is None:
        return None
    texts = dict.fromkeys((scope, Scope(known.app, known.operation).text))
    ids = [make_key(Scope(known.app, DECLARATION), text).id for text in texts]
    for state in await store.latest.read_latest(ids, timeout=TIMEOUT):
        if state is not None and state.value is not None:
            declared = decode_declaration(state.value)
            if declared is not None:
                return declared
    return None

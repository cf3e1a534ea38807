"""What record and attempt promise together. No promise uses the state table or the flow."""

from __future__ import annotations

from collections.abc import Iterator

from onceward.engine.attempt import (
    ABANDONED,
    LOST,
    NOT_BEGUN,
    REFUSED,
    RUNNING,
    SETTLED,
    UNKNOWN,
    UNPROTECTED,
    WAITING,
    AttemptState,
)
from onceward.protocol.record import Record, RecordState
from onceward.protocol.requests import Complete, Fail, Park, Release, Verdict

from .attempt_world import Client, World, is_live, owns
from .logic import Promise

LEGAL = "an attempt moves only along the table"
ALONE = "two attempts never run together within their leases"
AGAIN = "completed work does not run again inside its window"
DOUBT = "an effect that may have happened under park or verify is never silently repeated"
RECORDED = "a settled attempt was recorded as it says"
EXPLAINED = "a refusal says what the record is"
NOT_ITSELF = "an attempt is not refused because of its own claim"
LOST_TO = "a lost attempt was replaced, parked or removed by others"
UNSURE = "UNKNOWN means that the store gave no definite answer"
OVER = "an attempt that has ended changes nothing"
REPLACED = "an attempt that was replaced changes nothing"
HOLDS = "an attempt that waits or has ended holds no live lease"
UNBEGUN = "a key is released only if its work has not begun"
OUTSIDE = "an unprotected attempt only releases its own unanswered claim"


def of_world(world: World) -> Iterator[Promise]:
    """Yield the promises of every state."""
    runs = [
        one for one in world.clients if one.state is RUNNING and world.now < one.ends and not (one.cut or one.joined)
    ]
    yield ALONE, len(runs) < 2
    for one in world.clients:
        if one.state in (REFUSED, SETTLED, LOST, WAITING) and not one.strayed:
            yield HOLDS, not (owns(world.record, one) and is_live(world.record, world.now))


def of_move(world: World, before: Client, after: Client, verdict: Verdict | None) -> Iterator[Promise]:
    """Yield the promises of one move. `world` has the record after it; `verdict` is the answer that caused it."""
    if after.state is before.state:
        return
    record = world.record
    if after.state is RUNNING and (after.token == 0 or owns(record, after)):
        yield AGAIN, world.kept is None
        yield DOUBT, not world.doubt or after.verified
    elif after.state is REFUSED:
        yield EXPLAINED, explains(world, after.refused)
        own = record is not None and record.nonce.startswith(after.nonce.rstrip(b"'"))
        yield NOT_ITSELF, not (own and after.refused is Verdict.RUNNING)
    elif after.state is SETTLED:
        parked = isinstance(after.request, Park) and record is not None and record.state is RecordState.PARKED
        yield RECORDED, before.settled_as is not None or after.recorded == after.request or parked
    elif after.state is LOST:
        yield LOST_TO, was_lost(record, after)
    elif after.state is UNKNOWN:
        yield UNSURE, verdict in (None, Verdict.CONFLICT, Verdict.SKEW)


def explains(world: World, refused: Verdict | None) -> bool:
    """Return whether the record is in the state that the refusal reports."""
    record, now = world.record, world.now
    if record is None or refused is None:
        return False
    in_window = record.valid_until is None or now < record.valid_until
    match refused:
        case Verdict.REPLAY:
            return record.state is RecordState.COMPLETED and in_window
        case Verdict.RUNNING:
            return record.state is RecordState.PENDING and is_live(record, now)
        case Verdict.FAILED:
            return record.state is RecordState.FAILED and in_window
        case _:
            return refused is Verdict.PARKED and record.state is RecordState.PARKED


def was_lost(record: Record | None, client: Client) -> bool:
    replaced = record is not None and record.token > client.token
    parked = record is not None and record.state is RecordState.PARKED
    return replaced or parked or client.cut or client.recorded is not None


def of_change(before: Record | None, client: Client, request: object) -> Iterator[Promise]:
    """Yield the promises of a request other than a claim that changed the record."""
    yield REPLACED, before is not None and before.nonce == client.nonce
    yield OVER, client.state not in (REFUSED, SETTLED, LOST) and client.settled_as is None
    if client.state is UNPROTECTED:
        yield OUTSIDE, isinstance(request, Release)
    if client.state is ABANDONED and not client.owes:
        yield OVER, isinstance(request, Complete | Fail | Park | Release) and request == client.request


def of_release(state: AttemptState, client: Client) -> Iterator[Promise]:
    """Yield the promise of an attempt that decides, in this state, to release its key."""
    yield UNBEGUN, state in NOT_BEGUN and not client.begun

"""Read from the store how many records need attention: pending for too long, parked, failed, or of stuck schedules."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence

from onceward.engine.lock_record import is_lock
from onceward.errors import StoreUnavailable
from onceward.protocol.cells import attempts_used_up
from onceward.protocol.counters import HOUR, operation_of
from onceward.protocol.note import SAGA
from onceward.protocol.operation_names import NEXT_SLOT, SCHEDULE_PREFIX, SKIPPED
from onceward.protocol.ports import Filter, Page, Store
from onceward.protocol.record import AfterCrash, Record, RecordState
from onceward.protocol.resolved import is_abandoned
from onceward.protocol.transitions import Row, row_of

from .rules import RecordFigures
from .thresholds import DAY, Thresholds

SEARCH = 60.0  # seconds; scans many records, for an operator
PAGE = 200  # records per page: each may have a result of a megabyte
UNFINISHED = (RecordState.PENDING, RecordState.PARKED, RecordState.FAILED)


async def record_figures(
    store: Store, thresholds: Thresholds, timeout: float = SEARCH, cursors: Sequence[bytes] | None = None
) -> RecordFigures:
    """Return the figures by operation. `cursors` are the ids of schedule cursors; None means all in the store."""
    counter = RecordCounter(thresholds)
    async for record, now in _scan(store, Filter(states=UNFINISHED), timeout):
        counter.add(record, now)
    found = await _all_cursors(store, timeout) if cursors is None else await _read(store, cursors, timeout)
    return counter.figures(found)


class RecordCounter:
    """Counts unfinished records that need attention, by operation. Skips locks: they may be held for long."""

    def __init__(self, thresholds: Thresholds) -> None:
        self._thresholds = thresholds
        self._old_pending: Counter[str] = Counter()
        self._parked: Counter[str] = Counter()
        self._failed_final: Counter[str] = Counter()
        self._parked_since: dict[str, int] = {}
        self._running: set[str] = set()

    def add(self, record: Record, now: int) -> None:
        """Count a record that was read at the store's time `now`."""
        if is_lock(record):
            return
        operation = operation_of(record.scope)
        if record.state is RecordState.PARKED:
            self._parked[operation] += 1
            self._note_parked(operation, record.updated_at)
        elif record.state is RecordState.FAILED:
            self._failed_final[operation] += _failed_today(record, now)
        else:
            self._add_pending(operation, record, now)

    def _add_pending(self, operation: str, record: Record, now: int) -> None:
        is_old = record.claimed_at < now - self._thresholds.old_pending_age
        self._old_pending[operation] += is_old
        if row_of(record, now) is Row.PENDING_LIVE:
            self._running.add(record.scope)
        elif record.lease_until is not None and needs_operator(record, now, is_old=True):
            self._parked[operation] += needs_operator(record, now, is_old=is_old)
            verified = record.after_crash is AfterCrash.VERIFY  # it counts only if it is old: see `needs_operator`
            old_at = record.claimed_at + min(self._thresholds.old_pending_age, Thresholds().old_pending_age)
            self._note_parked(operation, max(record.lease_until, old_at) if verified else record.lease_until)

    def _note_parked(self, operation: str, since: int) -> None:
        self._parked_since[operation] = min(since, self._parked_since.get(operation, since))

    def figures(self, cursors: Iterable[tuple[Record, int]]) -> RecordFigures:
        """Return the counts. `cursors` are the records of schedule cursors."""
        stuck = stuck_schedules(cursors, self._running, self._thresholds.stuck_schedule_age)
        return RecordFigures(
            +self._old_pending,
            +self._parked,
            +self._failed_final,
            stuck,
            self._parked_since,
        )


def needs_operator(record: Record, now: int, *, is_old: bool) -> bool:
    """Return whether a worker stopped, its effect is unknown, and an operator must resolve it.

    With `park`, or after the last attempt, the next delivery would only park it. With `verify`, the next delivery
    checks the effect, so the record needs an operator only if it is old: no delivery has arrived. Sagas settle their
    own steps.
    """
    if row_of(record, now) is not Row.PENDING_LAPSED or record.note.get(SAGA):
        return False
    if record.after_crash is AfterCrash.VERIFY:
        return is_old
    return record.after_crash is AfterCrash.PARK or attempts_used_up(record.attempt, record.max_attempts)


def is_final_failure(record: Record, now: int) -> bool:
    """Return whether the record has failed and is not retried. Skipped slots and abandoned work are not failures."""
    row = row_of(record, now)
    if is_abandoned(record) or (record.error_type == SKIPPED and _is_schedule(record.scope)):
        return False
    return row is Row.FAILED_FINAL or (
        row is Row.FAILED_RETRYABLE and attempts_used_up(record.attempt, record.max_attempts)
    )


def _failed_today(record: Record, now: int) -> bool:
    return record.updated_at > now - DAY * HOUR and is_final_failure(record, now)


def _is_schedule(scope: str) -> bool:
    return operation_of(scope).partition("/")[2].startswith(SCHEDULE_PREFIX)


def stuck_schedules(cursors: Iterable[tuple[Record, int]], running: set[str], age: int) -> dict[str, int]:
    """Return the schedules whose next slot is overdue by more than `age` while no slot is running.

    Each pattern has its own cursor. Only the one that moved last counts: the others belong to earlier patterns.
    """
    latest: dict[str, tuple[Record, int]] = {}
    for record, now in cursors:
        if record.note.get(NEXT_SLOT) and record.updated_at >= _updated_at(latest.get(record.scope)):
            latest[record.scope] = record, now
    stuck: Counter[str] = Counter()
    for scope, (record, now) in latest.items():
        if scope not in running and int(record.note[NEXT_SLOT]) + age < now:
            stuck[operation_of(scope)] += 1
    return stuck


def _updated_at(known: tuple[Record, int] | None) -> int:
    return -1 if known is None else known[0].updated_at


async def _all_cursors(store: Store, timeout: float) -> list[tuple[Record, int]]:
    try:
        counts = await store.counts(timeout=timeout)
    except StoreUnavailable:  # too many records to scan in time: the other figures still count
        return []
    scopes = sorted({scope for scope, state in counts if state is RecordState.COMPLETED and _is_schedule(scope)})
    wanted = [Filter(states=(RecordState.COMPLETED,), scope=scope) for scope in scopes]
    return [one for one_scope in wanted async for one in _scan(store, one_scope, timeout) if NEXT_SLOT in one[0].note]


async def _read(store: Store, ids: Sequence[bytes], timeout: float) -> list[tuple[Record, int]]:
    answers = await store.read(ids, timeout=timeout) if ids else []
    return [
        (answer.record, answer.now)
        for answer in answers
        if answer.record is not None and answer.record.state is RecordState.COMPLETED
    ]


async def _scan(store: Store, wanted: Filter, timeout: float) -> AsyncIterator[tuple[Record, int]]:
    async for page in scan_pages(store, wanted, timeout):
        for record in page.records:
            yield record, page.now


async def scan_pages(store: Store, wanted: Filter, timeout: float) -> AsyncIterator[Page]:
    """Yield all matching records, page by page."""
    cursor = None
    while True:
        page = await store.scan(wanted, cursor=cursor, limit=PAGE, timeout=timeout)
        yield page
        cursor = page.cursor
        if cursor is None:
            return

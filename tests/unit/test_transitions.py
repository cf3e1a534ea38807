"""The state table, cell by cell. The expectations are written from the protocol, not from the code."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from msgspec.structs import asdict, replace

from onceward.protocol.cells import KEEP_UNFINISHED
from onceward.protocol.record import NO_OWNER, READER, AfterCrash, Record, RecordState
from onceward.protocol.requests import ClaimRequest, Complete, Fail, Park, Release, Renewal, Verdict
from onceward.protocol.transitions import CLOCK_MARGIN, claim, forget, purgeable, renew, settle

SECOND = 1_000_000
LEASE = 600 * SECOND
DAY = 24 * 3600 * SECOND
NOW = 1_800_000_000 * SECOND
OLD = NOW - 40 * DAY  # of everything about the record: older than every margin

OWNER, OTHER = b"owner's nonce", b"claimant's nonce"
PAYLOAD, OTHER_PAYLOAD, OTHER_ENCODER = b"\x01same", b"\x01different", b"\x02different"
NOTE, ADDED = {"path": "a.pdf"}, {"page": "7"}

PENDING = Record(
    id=b"id",
    scope="scope",
    key="key",
    state=RecordState.PENDING,
    token=OLD,
    nonce=OWNER,
    cycle=OLD - 5,
    attempt=2,
    created_at=OLD - 5,
    claimed_at=OLD,
    updated_at=OLD,
    renewed_at=OLD,
    lease_until=NOW + LEASE,
    fingerprint=PAYLOAD,
    note=NOTE,
)
LAPSED = replace(PENDING, lease_until=NOW)
SETTLED = replace(PENDING, lease_until=None)
COMPLETED = replace(SETTLED, state=RecordState.COMPLETED, result=b"42", digest=b"digest of 42", valid_until=NOW + DAY)
FAILED = replace(
    SETTLED, state=RecordState.FAILED, error_type="OSError", error="no route", retry_at=NOW, valid_until=NOW + DAY
)
FINAL = replace(FAILED, final=True, retry_at=None)
FREE = Record(id=b"id", scope="scope", key="key", state=RecordState.FREE, token=OLD, cycle=OLD - 5)


class After(NamedTuple):
    """The record after a transition. `token`: kept or grown; `attempt`: a difference, or None for "starts at 1"."""

    state: RecordState
    token: str = "kept"
    nonce: bytes = OWNER
    attempt: int | None = 0
    cycle: str = "kept"
    created_at: str = "kept"
    note: tuple[dict[str, str], ...] = (NOTE, ADDED)
    lease: int | None = None


class Cell(NamedTuple):
    verdict: Verdict
    after: After | None = None  # None: the very same record


NEW_CYCLE = Cell(
    Verdict.ACQUIRED, After(RecordState.PENDING, "grown", OTHER, None, "new", "new", note=(ADDED,), lease=NOW + LEASE)
)
NEXT_ATTEMPT = Cell(Verdict.ACQUIRED, After(RecordState.PENDING, "grown", OTHER, 1, lease=NOW + LEASE))
PARKED_NOW = Cell(Verdict.PARKED, After(RecordState.PARKED, note=(NOTE,)))
RENEWED = Cell(Verdict.OK, After(RecordState.PENDING, lease=NOW + LEASE))
COMPLETES = Cell(Verdict.OK, After(RecordState.COMPLETED))
FAILS = Cell(Verdict.OK, After(RecordState.FAILED))
PARKS = Cell(Verdict.OK, After(RecordState.PARKED))
HANDS_BACK = Cell(Verdict.OK, After(RecordState.FAILED, attempt=-1, note=(NOTE,)))  # attempt 2 → FAILED, due now
FREED = Cell(Verdict.OK, After(RecordState.FREE, "grown", NO_OWNER, -2, note=()))
SAME, LOST, SKEW = Cell(Verdict.OK), Cell(Verdict.LOST), Cell(Verdict.SKEW)


class Row(NamedTuple):
    record: Record | None
    claim: Cell
    renew: Cell
    complete: Cell
    fail: Cell
    park: Cell
    release: Cell
    forget: Cell
    forced: Cell
    purge: bool
    max_attempts: int = 0


def row_of_an_ended_ownership(
    record: Record, claim: Cell, *, complete: Cell = LOST, fail: Cell = SAME, release: Cell = LOST, **rest: Any
) -> Row:
    purge = rest.pop("purge", False)
    return Row(record, claim, LOST, complete, fail, LOST, release, FREED, FREED, purge, **rest)


def row_of_a_lapse(record: Record, claim: Cell, *, release: Cell = HANDS_BACK, **rest: Any) -> Row:
    purge = rest.pop("purge", False)
    return Row(record, claim, RENEWED, COMPLETES, FAILS, PARKS, release, FREED, FREED, purge, **rest)


LIVE_ROW = Row(
    PENDING,
    Cell(Verdict.RUNNING),
    RENEWED,
    COMPLETES,
    FAILS,
    PARKS,
    HANDS_BACK,
    Cell(Verdict.REFUSED),
    FREED,
    purge=False,
)
FAILED_ANSWER = Cell(Verdict.FAILED)
VERIFY, PARK = AfterCrash.VERIFY, AfterCrash.PARK

ABOVE: dict[str, Row] = {  # rows whose payload no longer matters
    "none": Row(None, NEW_CYCLE, LOST, LOST, LOST, LOST, LOST, SAME, SAME, purge=False),
    "FREE": Row(FREE, NEW_CYCLE, LOST, LOST, LOST, LOST, LOST, SAME, SAME, purge=True),
    "FREE by release": Row(
        replace(FREE, nonce=OWNER, released=True), NEW_CYCLE, LOST, LOST, LOST, LOST, SAME, SAME, SAME, purge=True
    ),
    "COMPLETED, over": row_of_an_ended_ownership(
        replace(COMPLETED, valid_until=NOW), NEW_CYCLE, complete=SAME, fail=LOST, purge=True
    ),
    "FAILED final, over": row_of_an_ended_ownership(replace(FINAL, valid_until=NOW), NEW_CYCLE, purge=True),
    "FAILED, past keep_unfinished": row_of_an_ended_ownership(replace(FAILED, valid_until=NOW), NEW_CYCLE, purge=True),
    "FAILED by release, past keep_unfinished": row_of_an_ended_ownership(
        replace(FAILED, valid_until=NOW, released=True), NEW_CYCLE, release=SAME, purge=True
    ),
}
BELOW: dict[str, Row] = {
    "PENDING, live": LIVE_ROW,
    "PENDING, lease missing": LIVE_ROW._replace(
        record=replace(PENDING, lease_until=None), renew=Cell(Verdict.OK, After(RecordState.PENDING))
    ),
    "PENDING lapsed, rerun, attempts left": row_of_a_lapse(LAPSED, NEXT_ATTEMPT, max_attempts=3),
    "PENDING lapsed, rerun, unlimited": row_of_a_lapse(LAPSED, NEXT_ATTEMPT),
    "PENDING lapsed, rerun, past keep_unfinished": row_of_a_lapse(
        replace(LAPSED, lease_until=NOW - KEEP_UNFINISHED), NEXT_ATTEMPT, purge=True
    ),
    "PENDING lapsed, rerun, attempts used up": row_of_a_lapse(
        replace(LAPSED, lease_until=NOW - KEEP_UNFINISHED, max_attempts=2), PARKED_NOW, max_attempts=2
    ),
    "PENDING lapsed, verify": row_of_a_lapse(
        replace(LAPSED, lease_until=NOW - KEEP_UNFINISHED, after_crash=VERIFY, ask_first=True),
        NEXT_ATTEMPT,
        release=Cell(Verdict.OK, After(RecordState.PENDING, attempt=-1, note=(NOTE,), lease=NOW)),
        max_attempts=2,
    ),
    "PENDING lapsed, park": row_of_a_lapse(
        replace(LAPSED, lease_until=NOW - KEEP_UNFINISHED, after_crash=PARK), PARKED_NOW
    ),
    "FAILED, attempts used up": row_of_an_ended_ownership(FAILED, FAILED_ANSWER, max_attempts=2),
    "FAILED, before retry_at": row_of_an_ended_ownership(replace(FAILED, retry_at=NOW + 1), FAILED_ANSWER),
    "FAILED, due": row_of_an_ended_ownership(FAILED, NEXT_ATTEMPT, max_attempts=3),
    "FAILED by release, due": row_of_an_ended_ownership(replace(FAILED, released=True), NEXT_ATTEMPT, release=SAME),
    "FAILED final, in window": row_of_an_ended_ownership(FINAL, FAILED_ANSWER),
    "COMPLETED, in window": row_of_an_ended_ownership(COMPLETED, Cell(Verdict.REPLAY), complete=SAME, fail=LOST),
    "COMPLETED, forever": row_of_an_ended_ownership(
        replace(COMPLETED, valid_until=None), Cell(Verdict.REPLAY), complete=SAME, fail=LOST
    ),
    "COMPLETED, result not stored": row_of_an_ended_ownership(
        replace(COMPLETED, result=None, stored=False), Cell(Verdict.REPLAY), complete=SAME, fail=LOST
    ),
    "PARKED": row_of_an_ended_ownership(
        replace(SETTLED, state=RecordState.PARKED), Cell(Verdict.PARKED), complete=COMPLETES, fail=LOST
    )._replace(park=SAME),
}
NEWER = Row(replace(PENDING, min_reader=READER + 1), SKEW, SKEW, SKEW, SKEW, SKEW, SKEW, SKEW, SKEW, purge=False)
ROWS = {"newer min_reader": NEWER, **ABOVE, **BELOW}
VERBS = ("claim", "renew", "complete", "fail", "park", "release", "forget", "forced")
EXISTING = [name for name, row in ROWS.items() if row.record is not None]


def claiming(nonce: bytes = OTHER, **other: Any) -> ClaimRequest:
    settings: dict[str, Any] = {"lease": LEASE, "fingerprint": PAYLOAD, "note": ADDED, **other}
    return ClaimRequest(id=b"id", scope="scope", key="key", nonce=nonce, **settings)


def completing(token: int = OLD, nonce: bytes = OWNER, **other: Any) -> Complete:
    settings: dict[str, Any] = {"result": b"42", "digest": b"digest of 42", "note": ADDED, **other}
    return Complete(id=b"id", token=token, nonce=nonce, **settings)


def by_owner(verb: str, record: Record | None, token: int = OLD, nonce: bytes = OWNER, max_attempts: int = 0) -> Any:
    match verb:
        case "renew":
            return renew(record, Renewal(id=b"id", token=token, nonce=nonce, lease=LEASE, note=ADDED), NOW)
        case "complete":
            return settle(record, completing(token, nonce), NOW)
        case "fail":
            failed = Fail(b"id", token, nonce, "ValueError", "bad", known=True, max_attempts=max_attempts, note=ADDED)
            return settle(record, failed, NOW)
        case "park":
            return settle(record, Park(id=b"id", token=token, nonce=nonce, note=ADDED), NOW)
        case _:
            return settle(record, Release(id=b"id", token=token, nonce=nonce), NOW)


def apply(verb: str, row: Row) -> tuple[Record | None, Verdict]:
    if verb == "claim":
        return claim(row.record, claiming(max_attempts=row.max_attempts), NOW)
    if verb in ("forget", "forced"):
        return forget(row.record, NOW, force=verb == "forced")
    answer: tuple[Record | None, Verdict] = by_owner(verb, row.record, max_attempts=row.max_attempts)
    return answer


def check_after(before: Record | None, record: Record | None, expected: After) -> None:
    assert record is not None
    assert record.state is expected.state
    if before is None:
        assert (record.token, record.created_at) == (NOW, NOW)
    elif expected.token == "grown":
        assert record.token > before.token
    else:
        assert record.token == before.token
    assert record.nonce == expected.nonce
    assert record.attempt == (1 if expected.attempt is None or before is None else before.attempt + expected.attempt)
    if expected.state is not RecordState.FREE:  # a FREE key has no work: neither a cycle nor an age
        kept_cycle = before is not None and record.cycle == before.cycle
        assert kept_cycle == (expected.cycle == "kept")
        assert record.created_at == (before.created_at if before and expected.created_at == "kept" else NOW)
    assert record.note == {name: text for part in expected.note for name, text in part.items()}
    assert record.lease_until == expected.lease
    assert record.updated_at == NOW


@pytest.mark.mission("A3", "A7")
@pytest.mark.fault("F32", "F36", "F41", "F42")
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("name", ROWS)
def test_the_cell(name: str, verb: str) -> None:
    row = ROWS[name]
    expected: Cell = getattr(row, verb)
    record, verdict = apply(verb, row)
    assert verdict is expected.verdict
    if expected.after is None:
        assert record is row.record
    else:
        check_after(row.record, record, expected.after)


@pytest.mark.fault("F66")
@pytest.mark.parametrize("name", EXISTING)
def test_purge_deletes_only_what_the_table_lets_it(name: str) -> None:
    row = ROWS[name]
    assert row.record is not None
    assert purgeable(row.record, NOW) == row.purge


@pytest.mark.rival(22)
@pytest.mark.parametrize("name", [name for name in EXISTING if ROWS[name].purge])
def test_purge_keeps_an_expired_record_while_its_token_is_young(name: str) -> None:
    record = ROWS[name].record
    assert record is not None
    assert not purgeable(replace(record, token=NOW - CLOCK_MARGIN), NOW)
    assert purgeable(replace(record, token=NOW - CLOCK_MARGIN - 1), NOW)


@pytest.mark.rival(1)
@pytest.mark.fault("F41")
@pytest.mark.parametrize(("token", "nonce"), [(OLD - 1, OWNER), (OLD + 1, OWNER), (OLD, OTHER), (OLD, NO_OWNER)])
@pytest.mark.parametrize("verb", ["renew", "complete", "fail", "park", "release"])
@pytest.mark.parametrize("name", [name for name in ROWS if name != "newer min_reader"])
def test_an_owner_without_the_token_or_the_nonce_has_lost_and_changes_nothing(
    name: str, verb: str, token: int, nonce: bytes
) -> None:
    record = ROWS[name].record
    if record is not None and (record.token, record.nonce) == (token, nonce):
        record = replace(record, nonce=b"another owner's")  # FREE has no nonce
    assert by_owner(verb, record, token, nonce) == (record, Verdict.LOST)


@pytest.mark.rival(5)
@pytest.mark.fault("F18")
@pytest.mark.parametrize("name", BELOW)
def test_another_payload_is_a_mismatch_and_changes_nothing(name: str) -> None:
    row = BELOW[name]
    asked = claiming(fingerprint=OTHER_PAYLOAD, max_attempts=row.max_attempts)
    record, verdict = claim(row.record, asked, NOW)
    assert verdict is Verdict.MISMATCH
    assert record is row.record


@pytest.mark.parametrize("name", ABOVE)
def test_another_payload_is_new_work_once_the_earlier_is_over(name: str) -> None:
    record, verdict = claim(ABOVE[name].record, claiming(fingerprint=OTHER_PAYLOAD), NOW)
    assert verdict is Verdict.ACQUIRED
    assert record.fingerprint == OTHER_PAYLOAD


@pytest.mark.parametrize("fingerprint", [b"", OTHER_ENCODER])
@pytest.mark.parametrize("name", BELOW)
def test_fingerprints_that_cannot_be_compared_are_not(name: str, fingerprint: bytes) -> None:
    row = BELOW[name]
    asked = claiming(fingerprint=fingerprint, max_attempts=row.max_attempts)
    assert claim(row.record, asked, NOW)[1] is row.claim.verdict


@pytest.mark.rival(20)
@pytest.mark.fault("F53")
@pytest.mark.parametrize("name", [name for name in EXISTING if name not in {"newer min_reader", "FREE"}])
def test_a_claim_with_its_own_nonce_gets_the_same_answer_and_never_acquires_anew(name: str) -> None:
    row = ROWS[name]
    assert row.record is not None
    asked = claiming(OWNER, fingerprint=OTHER_PAYLOAD, max_attempts=row.max_attempts)
    record, verdict = claim(row.record, asked, NOW)
    expected = {RecordState.PENDING: Verdict.ACQUIRED, RecordState.COMPLETED: Verdict.REPLAY}
    assert verdict is expected.get(row.record.state, Verdict.SETTLED)
    lapsed = row.record.lease_until is not None and row.record.lease_until <= NOW
    if row.record.state is RecordState.PENDING and lapsed:
        assert asdict(record) == {
            **asdict(row.record),
            "lease_until": NOW + LEASE,
            "renewed_at": NOW,
            "updated_at": NOW,
        }
    else:
        assert record is row.record


@pytest.mark.rival(1)
@pytest.mark.fault("F36")
@pytest.mark.parametrize(
    ("name", "expected"), [("COMPLETED, in window", Verdict.CONFLICT), ("COMPLETED, over", Verdict.LOST)]
)
def test_completing_twice_with_another_result_is_refused(name: str, expected: Verdict) -> None:
    before = ROWS[name].record
    record, verdict = settle(before, completing(result=b"43", digest=b"digest of 43"), NOW)
    assert verdict is expected
    assert record is before

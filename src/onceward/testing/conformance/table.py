"""Every cell of the state table, one by one: a record is brought into each row, and each verb is tried on it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

from msgspec.structs import replace

from onceward.protocol.record import READER, AfterCrash, RecordState
from onceward.protocol.requests import (
    AnySettlement,
    Complete,
    Fail,
    Park,
    Release,
    Renewal,
    Resolution,
    Resolve,
    Validity,
    Verdict,
)
from onceward.protocol.transitions import Row, row_of

from .factory import StoreFactory, check
from .histories import BLANK, Asks, Claims, Forget, Player, Sight, Step, Turn, Whose
from .mirror import Mirror
from .stage import DAY, LEASE, SECOND, Stage, assert_same, id_of

MOMENT = 1
"""Leases and windows of a microsecond, so that a store with a clock of its own hardly makes us wait."""

OVER = Validity(lasting=MOMENT)
OURS = replace(BLANK, fingerprint=b"\1payload", arguments={"x": "1a"}, note={"path": "a"}, owner="worker")
COMPLETE = Complete(b"", 0, b"", result=b"done", digest=b"digest", note={"done": "yes"})
FAIL = Fail(b"", 0, b"", error_type="ValueError", error="no", note={"failed": "yes"})
PARK = Park(b"", 0, b"", error_type="Timeout", error="who knows", note={"parked": "yes"})
RELEASE = Release(b"", 0, b"")
RENEW = Renewal(b"", 0, b"", LEASE, note={"alive": "yes"})
"""The owner's requests; whose they are is filled in when they are sent."""


def claiming(key: str, nonce: int = 0, **how: object) -> Claims:
    return Claims(((key, nonce, replace(OURS, **how)),))


def owning(key: str, request: Complete | Fail | Park | Release) -> Asks:
    return Asks(key, Whose.LAST, request)


def ways_to(row: Row, key: str) -> list[Step]:
    """The steps that bring a new key into this row."""
    claim, lapsing = claiming(key), claiming(key, lease=MOMENT)
    asking = claiming(key, lease=MOMENT, after_crash=AfterCrash.VERIFY)
    ways: dict[Row, list[Step]] = {
        Row.NONE: [],
        Row.FREE: [claim, owning(key, RELEASE)],
        Row.PENDING_LIVE: [claim],
        Row.PENDING_LAPSED: [lapsing, Turn(MOMENT)],
        Row.RELEASED_UNVERIFIED: [
            asking,
            Turn(MOMENT),
            claiming(key, 1, after_crash=AfterCrash.VERIFY),
            owning(key, RELEASE),
        ],
        Row.FAILED_RETRYABLE: [claim, owning(key, FAIL)],
        Row.FAILED_RETRYABLE_EXPIRED: [claim, owning(key, FAIL), Turn(31 * DAY)],
        Row.FAILED_FINAL: [claim, owning(key, replace(FAIL, final=True))],
        Row.FAILED_FINAL_EXPIRED: [claim, owning(key, replace(FAIL, final=True, validity=OVER)), Turn(MOMENT)],
        Row.COMPLETED: [claim, owning(key, COMPLETE)],
        Row.COMPLETED_EXPIRED: [claim, owning(key, replace(COMPLETE, validity=OVER)), Turn(MOMENT)],
        Row.PARKED: [claim, owning(key, PARK)],
    }
    return ways[row]


def claims(key: str) -> list[Step]:
    """Claims by somebody new, by the same call again, with another payload, of each strictness, with few attempts."""
    return [
        claiming(key, 3),
        claiming(key, 0),
        claiming(key, 3, fingerprint=b"\1another", arguments={"x": "2b"}),
        claiming(key, 3, fingerprint=b"\2of a newer encoder"),
        claiming(key, 3, fingerprint=b""),
        claiming(key, 3, after_crash=AfterCrash.VERIFY),
        claiming(key, 3, after_crash=AfterCrash.PARK),
        claiming(key, 3, max_attempts=1),
        claiming(key, 3, lease=None),
    ]


def owners_verbs(key: str) -> list[Step]:
    """What an owner may do, by the owner and by each who nearly is."""
    requests: list[Renewal | AnySettlement] = [
        RENEW,
        replace(RENEW, note={}),
        COMPLETE,
        replace(COMPLETE, note={}),
        replace(COMPLETE, digest=b"other", result=b"other"),
        replace(COMPLETE, result=None, stored=False),
        FAIL,
        replace(FAIL, known=True, retry_in=SECOND),
        replace(FAIL, final=True, validity=OVER),
        replace(FAIL, max_attempts=1),
        PARK,
        RELEASE,
    ]
    plain: list[Renewal | AnySettlement] = [RENEW, COMPLETE, FAIL, PARK, RELEASE]
    nearly = [Asks(key, whose, one) for one in plain for whose in list(Whose)[1:]]
    return [*(Asks(key, Whose.LAST, one) for one in requests), *nearly]


def anybodys_verbs(key: str) -> list[Step]:
    """What needs no ownership: by somebody who saw the record as it is, and by one who saw another."""
    applied, not_applied, abandoned = (Resolve(b"", 0, one, result=b"known", digest=b"known") for one in Resolution)
    resolves = [Asks(key, whose, one) for one in (applied, not_applied, abandoned) for whose in list(Whose)[:2]]
    unparked = [
        replace(not_applied, state_seen=RecordState.PENDING),
        replace(not_applied, state_seen=RecordState.PENDING, force=True),
        replace(applied, state_seen=RecordState.PENDING, force=True),
        replace(abandoned, state_seen=RecordState.PENDING, force=True),
        replace(not_applied, state_seen=RecordState.FAILED),
        replace(applied, state_seen=RecordState.FAILED),
    ]
    unseen = Asks(key, Whose.EARLIER, replace(not_applied, state_seen=RecordState.PENDING, force=True))
    forgets = [Forget(key, force=force, sight=sight) for sight in Sight for force in (False, True)]
    return [*resolves, *(Asks(key, Whose.LAST, one) for one in unparked), unseen, *forgets]


class TableChecks(StoreFactory):
    """The cells, in three groups of columns."""

    @check(rival=(1, 5, 24), fault=("F18", "F42"))
    async def test_a_claim_of_a_record_in_each_row_answers_as_the_table_says(self, stage: Stage) -> None:
        mirror = await try_all(stage, claims)
        assert_visited(mirror, stage, "claim")

    @check(rival=(1,), fault=("F36", "F41"))
    async def test_owners_and_strangers_verbs_in_each_row_do_as_the_table_says(self, stage: Stage) -> None:
        mirror = await try_all(stage, owners_verbs)
        assert_visited(mirror, stage, "renew", "complete", "fail", "park", "release")

    @check()
    async def test_resolve_and_forget_in_each_row_do_as_the_table_says(self, stage: Stage) -> None:
        mirror = await try_all(stage, anybodys_verbs)
        assert_visited(mirror, stage, "resolve", "forget")

    @check(fault=("F67",))
    async def test_a_record_of_a_newer_version_is_left_alone(self, stage: Stage) -> None:
        caller = await stage.caller()
        held = await caller.acquire()
        self.plant(stage.place, held.id, min_reader=READER + 1)
        before = await caller.record()
        answers = {
            "claim": await caller.claim(),
            "repeated claim": await caller.claim(nonce=held.nonce),
            "forget": await caller.forget(force=True),
            "resolve": await caller.resolve(held, Resolution.ABANDON),
            **await caller.owners_verbs(held),
        }
        for verb, answer in answers.items():
            assert answer.verdict is Verdict.SKEW, f"{verb} of a newer record answers {answer.verdict} instead of skew"
        assert_same(before, await caller.record(), "after all this")


def rows_of(stage: Stage) -> list[Row]:
    """All rows that can be reached through the port; some are 30 days away."""
    return [
        row
        for row in Row
        if row is not Row.NEWER and (stage.fake is not None or row is not Row.FAILED_RETRYABLE_EXPIRED)
    ]


async def try_all(stage: Stage, verbs: Callable[[str], list[Step]], *, immediate: str = "") -> Mirror:
    """Every verb in every row. `immediate`: each request by itself, under keys that begin with this word."""
    mirror = Mirror(await stage.callers(1), stage.fake, immediate=bool(immediate))
    player = Player(mirror, stage)
    for row, number in product(rows_of(stage), range(len(verbs("")))):
        key = f"{immediate}{row} {number}"
        for step in ways_to(row, key):
            await player.play(step)
        record = mirror.records.get(id_of(key))
        assert row_of(record, stage.clock.now()) is row, f"the way to {row} ends with {record}"
        await player.play(verbs(key)[number])
    if not immediate:  # then the keys of the others are there too
        await mirror.compare("after every cell")
    return mirror


def assert_visited(mirror: Mirror, stage: Stage, *verbs: str) -> None:
    """A check that visits nothing finds nothing."""
    missing = set(product(rows_of(stage), verbs)) - set(mirror.visited)
    assert not missing, f"never tried: {missing}"

"""Random histories against the state table: the widest net of the kit."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from itertools import count
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from onceward.protocol.record import AfterCrash, RecordState
from onceward.protocol.requests import (
    Answer,
    AnySettlement,
    ClaimRequest,
    Complete,
    ExpectedRecord,
    Fail,
    Park,
    Release,
    Renewal,
    Resolution,
    Resolve,
    Validity,
    Verdict,
)

from .factory import StoreFactory, run
from .mirror import Mirror
from .stage import DAY, HOUR, LEASE, SECOND, SHORT, Stage, id_of

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

Owner = tuple[int, bytes]  # token and nonce


class Whose(StrEnum):
    """In whose name a request is sent."""

    LAST = "the last owner"
    EARLIER = "the owner before"
    WRONG_TOKEN = "the last owner's nonce with another token"  # noqa: S105 (a fencing token)
    WRONG_NONCE = "the last owner's token with another nonce"


class Claims(Struct, frozen=True):
    """One batch of claims. Each item: which key, which of few nonces, and the rest of the request."""

    items: tuple[tuple[str, int, ClaimRequest], ...]
    via: int = 0


class Asks(Struct, frozen=True):
    """A renewal or settlement; its owner is filled in when it is sent."""

    key: str
    whose: Whose
    request: Renewal | AnySettlement
    via: int = 0


class Sight(StrEnum):
    """What somebody says to have seen before they forget a record."""

    NOTHING = "nothing"
    THIS = "the record as it is"
    ANOTHER_TOKEN = "a record with another token"  # noqa: S105 (a fencing token)
    ANOTHER_STATE = "the record in another state"


class Forget(Struct, frozen=True):
    """Forget a key."""

    key: str
    force: bool = False
    via: int = 0
    sight: Sight = Sight.NOTHING


class Purge(Struct, frozen=True):
    """Purge some."""

    limit: int
    via: int = 0


class Turn(Struct, frozen=True):
    """Time passes, or (negative) the clock is set back."""

    microseconds: int


KEYS = ["one", "two"]
NOBODYS = (b"", 0, b"")
"""Id, token and nonce of a request whose owner is filled in later."""

REPERTOIRE = 4_000
"""Different steps to draw from: many times the cells of the table."""

LONG = 30
"""Steps after which two keys have lived through most of what can happen to them. What fails is shrunk below it."""

Step = Claims | Asks | Forget | Purge | Turn

BLANK = ClaimRequest(id=b"", scope="kit", key="", nonce=b"", lease=LEASE)
VALIDITIES = [
    Validity(),
    Validity(lasting=SECOND),
    Validity(lasting=8 * SECOND, slide=8 * SECOND),
    Validity(lasting=HOUR, slide=HOUR),
    Validity(until=4 * 10**15),
]
TURNS = [1, SHORT, SECOND, 2 * SECOND, 5 * SECOND, LEASE, HOUR // 2, HOUR + SECOND, 31 * DAY, -SECOND, -HOUR // 2]
NOTES: list[dict[str, str]] = [{}, {"path": "a"}, {"path": "b", "é\0🦊": ""}]


class Player:
    """Plays steps on a mirror, and remembers who owned what."""

    def __init__(self, mirror: Mirror, stage: Stage) -> None:
        self.mirror = mirror
        self._stage = stage
        self._owners: dict[str, list[Owner]] = {}

    async def play(self, step: Step) -> list[Answer]:
        mirror = self.mirror
        match step:
            case Claims(items, via):
                answers = await mirror.claim([self._claim(*item) for item in items], via)
                for (key, _, _), answer in zip(items, answers, strict=True):
                    self._remember(key, answer)
                return answers
            case Asks(key, whose, Renewal() as request, via):
                token, nonce = self.owner(key, whose)
                return await mirror.renew([replace(request, id=id_of(key), token=token, nonce=nonce)], via)
            case Asks(key, whose, Resolve() as request, via):
                seen = mirror.records.get(id_of(key))
                token = 0 if seen is None else seen.token + (whose is not Whose.LAST)
                return await mirror.settle([replace(request, id=id_of(key), token_seen=token)], via)
            case Asks(key, whose, Complete() | Fail() | Park() | Release() as request, via):
                token, nonce = self.owner(key, whose)
                return await mirror.settle([replace(request, id=id_of(key), token=token, nonce=nonce)], via)
            case Forget(key, force, via, sight):
                await mirror.forget(id_of(key), force=force, via=via, seen=self._seen(key, sight))
            case Purge(limit, via):
                await mirror.purge(limit, via)
            case Turn(microseconds):
                await self._turn(microseconds)
        return []

    async def _turn(self, microseconds: int) -> None:
        """A store with a clock of its own is only made to wait where that is short."""
        if self._stage.fake is not None:
            self._stage.turn(microseconds)
        elif 0 < microseconds <= SHORT:
            await self._stage.lapse(microseconds)

    def owner(self, key: str, whose: Whose) -> Owner:
        owners = self._owners.get(key, [(1, b"nobody's nonce")])
        token, nonce = owners[-1]
        match whose:
            case Whose.LAST:
                return token, nonce
            case Whose.EARLIER:
                return owners[-2] if len(owners) > 1 else (token - 1, nonce)
            case Whose.WRONG_TOKEN:
                return token + 1, nonce
            case Whose.WRONG_NONCE:
                return token, b"somebody else's."

    def _seen(self, key: str, sight: Sight) -> ExpectedRecord | None:
        record = self.mirror.records.get(id_of(key))
        if sight is Sight.NOTHING or record is None:
            return None
        others = [state for state in RecordState if state is not record.state]
        return ExpectedRecord(
            record.token + (sight is Sight.ANOTHER_TOKEN),
            others[record.token % len(others)] if sight is Sight.ANOTHER_STATE else record.state,
        )

    def _claim(self, key: str, number: int, rest: ClaimRequest) -> ClaimRequest:
        return replace(rest, id=id_of(key), key=key, nonce=b"nonce number %03d" % number)

    def _remember(self, key: str, answer: Answer) -> None:
        if answer.verdict is Verdict.ACQUIRED and answer.record is not None:
            owner = (answer.record.token, answer.record.nonce)
            owners = self._owners.setdefault(key, [])
            if owner not in owners:
                owners.append(owner)


def some_claims(dice: Random) -> Claims:
    keys = dice.sample(KEYS, dice.randint(1, len(KEYS)))
    return Claims(tuple((key, dice.randrange(6), some_claim(dice)) for key in keys), dice.randrange(2))


def some_claim(dice: Random) -> ClaimRequest:
    return replace(
        BLANK,
        lease=dice.choice([1, SHORT, LEASE, LEASE, None]),
        fingerprint=dice.choice([b"\1one", b"\1one", b"\1one", b"\1two", b"\2one", b""]),
        arguments=dice.choice([{}, {"x": "1a"}]),
        after_crash=dice.choice([AfterCrash.RERUN, AfterCrash.RERUN, *AfterCrash]),
        max_attempts=dice.choice([0, 0, 0, 1, 2]),
        owner=dice.choice(["", "worker é"]),
        note=dice.choice(NOTES),
    )


def some_asking(dice: Random) -> Asks:
    whose = dice.choice([*[Whose.LAST] * 6, *Whose])
    return Asks(dice.choice(KEYS), whose, some_request(dice), dice.randrange(2))


def some_request(dice: Random) -> Renewal | AnySettlement:
    note = dice.choice(NOTES)
    validity = dice.choice(VALIDITIES)
    error: dict[str, Any] = {"error_type": dice.choice(["", "ValueError"]), "error": dice.choice(["", "no é\0"])}
    number = dice.randrange(3)
    value: dict[str, Any] = {"result": (b"done", b"", None)[number], "digest": (b"one", b"two", b"")[number]}
    value |= {"stored": number < 2 or dice.random() < 0.5, "validity": validity, "note": note}
    requests: list[Renewal | AnySettlement] = [
        Renewal(*NOBODYS, lease=dice.choice([SHORT, LEASE]), note=note),
        Complete(*NOBODYS, **value),
        Complete(*NOBODYS, **value),
        Fail(
            *NOBODYS,
            **error,
            final=dice.random() < 0.3,
            known=dice.random() < 0.5,
            retry_in=dice.choice([0, SECOND]),
            max_attempts=dice.choice([0, 0, 1, 2]),
            validity=validity,
            note=note,
        ),
        Park(*NOBODYS, **error, note=note),
        Release(*NOBODYS),
        Resolve(
            b"",
            0,
            dice.choice(list(Resolution)),
            **value,
            state_seen=dice.choice([RecordState.PARKED, RecordState.PARKED, RecordState.PENDING, RecordState.FAILED]),
            force=dice.random() < 0.3,
        ),
    ]
    return dice.choice(requests)


def some_step(dice: Random) -> Step:
    kind = dice.choices(["claims", "asking", "turn", "forget", "purge"], [38, 36, 20, 3, 3])[0]
    match kind:
        case "claims":
            return some_claims(dice)
        case "asking":
            return some_asking(dice)
        case "turn":
            return Turn(dice.choice(TURNS))
        case "forget":
            sight = dice.choice([Sight.NOTHING, *Sight])
            return Forget(dice.choice(KEYS), dice.random() < 0.3, dice.randrange(2), sight)
        case _:
            return Purge(dice.choice([1, 100]), dice.randrange(2))


def histories() -> SearchStrategy[list[Step]]:
    """Steps are drawn whole from a repertoire: one cheap draw each, so that histories get long and shrink well."""
    from hypothesis import strategies as st

    dice = Random(REPERTOIRE)
    step = st.sampled_from([some_step(dice) for _ in range(REPERTOIRE)])
    long = st.lists(step, min_size=LONG, max_size=2 * LONG)
    return st.one_of(st.lists(step, min_size=1, max_size=LONG), long, long)


class HistoryChecks(StoreFactory):
    """Two stores on the same data, few keys, few nonces, any order of anything."""

    def test_random_histories_agree_with_the_state_table(self, mode: str, tmp_path: Path) -> None:
        from hypothesis import HealthCheck, Phase, given, settings

        numbers = count()

        @settings(
            max_examples=self.examples or settings().max_examples,
            deadline=None,
            phases=[phase for phase in settings().phases if phase is not Phase.explain],  # it traces every line
            report_multiple_bugs=False,  # the first is enough, and comes as itself instead of in a group
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        )
        @given(histories())
        def plays(history: list[Step]) -> None:
            place = tmp_path / str(next(numbers))
            place.mkdir()
            run(self, mode, place, lambda _, stage: self.play_history(stage, history))

        plays()

    async def play_history(self, stage: Stage, history: Sequence[Step]) -> None:
        mirror = Mirror(await stage.callers(2), stage.fake)
        player = Player(mirror, stage)
        for number, step in enumerate(history):
            await player.play(step)
            await mirror.lookup(f"after step {number}", via=number)
            if number % 8 == 0:
                await mirror.compare(f"after step {number}")
        await mirror.compare("at the end", via=1)

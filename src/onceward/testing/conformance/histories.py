"""Random histories against the state table: the widest net of the kit."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from onceward.model.record import (
    AfterCrash,
    Answer,
    ClaimRequest,
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
from onceward.ports import AnySettlement

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
    WRONG_TOKEN = "the last owner's nonce with another token"
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


class Forget(Struct, frozen=True):
    """Forget a key."""

    key: str
    force: bool = False
    via: int = 0


class Purge(Struct, frozen=True):
    """Purge some."""

    limit: int
    via: int = 0


class Turn(Struct, frozen=True):
    """Time passes, or (negative) the clock is set back."""

    microseconds: int


LONG = 20
"""Steps after which two keys have lived through most of what can happen to them. What fails is shrunk below it."""

Step = Claims | Asks | Forget | Purge | Turn

BLANK = ClaimRequest(id=b"", scope="kit", key="", nonce=b"", lease=LEASE)
VALIDITIES = [
    Validity(),
    Validity(lasting=SECOND),
    Validity(lasting=8 * SECOND, slide=8 * SECOND),
    Validity(until=4 * 10**15),
]
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
            case Asks(key, whose, request, via):
                token, nonce = self.owner(key, whose)
                return await mirror.settle([replace(request, id=id_of(key), token=token, nonce=nonce)], via)
            case Forget(key, force, via):
                await mirror.forget(id_of(key), force=force, via=via)
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

    def _claim(self, key: str, number: int, rest: ClaimRequest) -> ClaimRequest:
        return replace(rest, id=id_of(key), key=key, nonce=b"nonce number %03d" % number)

    def _remember(self, key: str, answer: Answer) -> None:
        if answer.verdict is Verdict.ACQUIRED and answer.record is not None:
            owner = (answer.record.token, answer.record.nonce)
            owners = self._owners.setdefault(key, [])
            if owner not in owners:
                owners.append(owner)


def claim_steps(keys: Sequence[str], via: SearchStrategy[int]) -> SearchStrategy[Claims]:
    from hypothesis import strategies as st

    request = st.builds(
        ClaimRequest,
        id=st.just(b""),
        scope=st.just("kit"),
        key=st.just(""),
        nonce=st.just(b""),
        lease=st.sampled_from([SHORT, LEASE, 1, None]),
        fingerprint=st.sampled_from([b"\1one", b"\1one", b"\1one", b"\1two", b"\2one", b""]),
        arguments=st.sampled_from([{}, {"x": "1a"}]),
        after_crash=st.sampled_from([AfterCrash.RERUN, AfterCrash.RERUN, *AfterCrash]),
        max_attempts=st.sampled_from([0, 0, 0, 1, 2]),
        owner=st.sampled_from(["", "worker é"]),
        note=st.sampled_from(NOTES),
    )
    items = st.lists(
        st.tuples(st.sampled_from(keys), st.integers(0, 7), request), min_size=1, max_size=len(keys), unique_by=lambda item: item[0]
    )
    return st.builds(Claims, items.map(tuple), via)


def ask_steps(keys: Sequence[str], via: SearchStrategy[int]) -> SearchStrategy[Asks]:
    from hypothesis import strategies as st

    owner: dict[str, Any] = {"id": st.just(b""), "token": st.just(0), "nonce": st.just(b"")}
    value: dict[str, Any] = {
        "result": st.sampled_from([b"done", b"", b"\0", None]),
        "digest": st.sampled_from([b"one", b"two", b""]),
        "stored": st.sampled_from([True, True, False]),
        "validity": st.sampled_from(VALIDITIES),
        "note": st.sampled_from(NOTES),
    }
    error: dict[str, Any] = {
        "error_type": st.sampled_from(["", "ValueError"]),
        "error": st.sampled_from(["", "no é\0"]),
        "note": value["note"],
    }
    request = st.one_of(
        st.builds(Renewal, lease=st.sampled_from([SHORT, LEASE]), note=value["note"], **owner),
        st.builds(Complete, **owner, **value),
        st.builds(
            Fail,
            final=st.booleans(),
            known=st.booleans(),
            retry_in=st.sampled_from([0, SECOND]),
            max_attempts=st.sampled_from([0, 1, 2]),
            validity=value["validity"],
            **owner,
            **error,
        ),
        st.builds(Park, **owner, **error),
        st.builds(Release, **owner),
        st.builds(Resolve, id=st.just(b""), token_seen=st.just(0), resolution=st.sampled_from(Resolution), **value),
    )
    whose = st.sampled_from([Whose.LAST, Whose.LAST, Whose.LAST, *Whose])
    return st.builds(Asks, st.sampled_from(keys), whose, request, via)


def histories() -> SearchStrategy[list[Step]]:
    from hypothesis import strategies as st

    keys = ["one", "two"]
    via = st.integers(0, 1)
    turns = [1, SHORT, SECOND, LEASE, HOUR + SECOND, 31 * DAY, -SECOND, -HOUR // 2]
    claims, asks = claim_steps(keys, via), ask_steps(keys, via)
    rare = st.one_of(
        st.builds(Forget, st.sampled_from(keys), st.booleans(), via),
        st.builds(Purge, st.sampled_from([1, 100]), via),
    )
    step = st.one_of(claims, claims, asks, asks, asks, st.builds(Turn, st.sampled_from(turns)), rare)
    long = st.lists(step, min_size=LONG, max_size=2 * LONG)
    return st.one_of(st.lists(step, min_size=1, max_size=LONG), long, long)


class HistoryChecks(StoreFactory):
    """Two stores on the same data, few keys, few nonces, any order of anything."""

    def test_random_histories_agree_with_the_state_table(self, colour: str, tmp_path: Path) -> None:
        from hypothesis import HealthCheck, given, settings

        numbers = count()

        @settings(
            deadline=None,
            report_multiple_bugs=False,  # the first is enough, and comes as itself instead of in a group
            suppress_health_check=list(HealthCheck),
        )
        @given(histories())
        def plays(history: list[Step]) -> None:
            place = tmp_path / str(next(numbers))
            place.mkdir()
            run(self, colour, place, lambda _, stage: self.play_history(stage, history))

        plays()

    test_random_histories_agree_with_the_state_table.shows = {}  # type: ignore[attr-defined]

    async def play_history(self, stage: Stage, history: Sequence[Step]) -> Mirror:
        mirror = Mirror(await stage.callers(2), stage.fake)
        player = Player(mirror, stage)
        for number, step in enumerate(history):
            await player.play(step)
            if number % 8 == 0:
                await mirror.compare(f"after step {number}")
        await mirror.compare("at the end", via=1)
        return mirror

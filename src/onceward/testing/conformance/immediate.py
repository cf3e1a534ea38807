"""Answers at once (the port `AnswersInline`): one request, without a coroutine, and the same answer as ever."""

from __future__ import annotations

from typing import cast
from unittest import SkipTest

from onceward.protocol.capabilities import AnswersInline
from onceward.protocol.requests import Answer, Verdict

from .factory import StoreFactory, check
from .stage import Stage, wanting
from .table import anybodys_verbs, assert_visited, claims, owners_verbs, try_all

MIN_BATCH = 8


async def immediate(stage: Stage) -> AnswersInline:
    store = (await stage.caller()).store
    if not isinstance(store, AnswersInline):
        raise SkipTest("this store has no answer()")
    return cast("AnswersInline", store)


class ImmediateChecks(StoreFactory):
    """For stores in whose calls nothing can wait."""

    @check(rival=(1, 5), fault=("F36", "F41"))
    async def test_what_is_answered_at_once_is_what_the_table_says(self, stage: Stage) -> None:
        await immediate(stage)
        for verbs, columns in (
            (claims, ("claim",)),
            (owners_verbs, ("renew", "complete", "fail", "park", "release")),
            (anybodys_verbs, ("resolve",)),
        ):
            mirror = await try_all(stage, verbs, immediate=columns[0])
            assert_visited(mirror, stage, *columns)

    @check(rival=(1,))
    async def test_of_many_who_are_answered_at_once_exactly_one_acquires(self, stage: Stage) -> None:
        store = await immediate(stage)

        async def ask() -> Answer:
            return store.answer(wanting("key"))

        won = [one for one in await stage.together([ask] * MIN_BATCH) if one.verdict is Verdict.ACQUIRED]
        assert len(won) == 1, f"{len(won)} of {MIN_BATCH} were granted the key"

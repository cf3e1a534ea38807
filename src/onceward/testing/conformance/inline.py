"""Inline answers (capability `AnswersInline`): `answer()` handles one request without a coroutine by the same rules."""

from __future__ import annotations

from typing import cast
from unittest import SkipTest

from onceward.protocol.capabilities import AnswersInline
from onceward.protocol.requests import Answer, Verdict

from .factory import StoreFactory, check
from .harness import Harness, claim_request
from .table import assert_visited, claim_requests, operator_requests, owner_requests, run_every_cell

CALLERS = 8


async def inline_store(harness: Harness) -> AnswersInline:
    store = (await harness.caller()).store
    if not isinstance(store, AnswersInline):
        raise SkipTest("this store has no answer()")
    return cast("AnswersInline", store)


class InlineChecks(StoreFactory):
    """For stores whose calls never wait; skipped for others."""

    @check(rival=(1, 5), fault=("F36", "F41"))
    async def test_inline_answers_agree_with_the_state_table(self, harness: Harness) -> None:
        await inline_store(harness)
        for verbs, columns in (
            (claim_requests, ("claim",)),
            (owner_requests, ("renew", "complete", "fail", "park", "release")),
            (operator_requests, ("resolve",)),
        ):
            model = await run_every_cell(harness, verbs, inline=columns[0])
            assert_visited(model, harness, *columns)

    @check(rival=(1,))
    async def test_of_many_inline_claims_exactly_one_acquires(self, harness: Harness) -> None:
        store = await inline_store(harness)

        async def ask() -> Answer:
            return store.answer(claim_request("key"))

        won = [one for one in await harness.run_concurrently([ask] * CALLERS) if one.verdict is Verdict.ACQUIRED]
        assert len(won) == 1, f"{len(won)} of {CALLERS} were granted the key"

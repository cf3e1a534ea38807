"""Fencing: whoever was replaced changes nothing, whoever was not may still finish, and tokens only grow."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import pairwise

from onceward.protocol.record import AfterCrash, Record, RecordState
from onceward.protocol.requests import ExpectedRecord, Resolution, Validity, Verdict

from .factory import StoreFactory, check
from .stage import DAY, HOUR, LEASE, SECOND, SHORT, Caller, Stage, assert_equal, assert_same, expect, stranger


class FencingChecks(StoreFactory):
    """Owners, late owners, and those who are owners no more."""

    @check(mission=("A4", "A7"), rival=(1,), fault=("F32", "F41"))
    async def test_a_replaced_owner_changes_nothing_while_the_new_one_works(self, stage: Stage) -> None:
        late, quick = await stage.callers(2)
        held = await stage.lapsed(late)
        taken = await quick.acquire()
        assert taken.attempt == 2, f"a take-over is attempt 2, not {taken.attempt}"
        await assert_powerless(stage, late, held)
        expect(await quick.renew(taken), Verdict.OK)
        expect(await quick.complete(taken, b"of the new owner"), Verdict.OK)

    @check(mission=("A7",), rival=(1,), fault=("F41",))
    async def test_a_replaced_owner_changes_nothing_after_the_new_one_settled(self, stage: Stage) -> None:
        late, quick = await stage.callers(2)
        for name, settle in endings(quick).items():
            held = await stage.lapsed(late, name)
            await settle(await quick.acquire(name))
            await assert_powerless(stage, late, held, name)

    @check(rival=(1,), fault=("F41",))
    async def test_nearly_the_owner_is_not_the_owner(self, stage: Stage) -> None:
        caller = await stage.caller()
        held = await caller.acquire()
        for nearly in (stranger(held, token=1), stranger(held, token=-1), stranger(held, nonce=b"0" * 16)):
            await assert_powerless(stage, caller, nearly)
        expect(await caller.complete(held), Verdict.OK)

    @check(rival=(1,), fault=("F36",))
    async def test_who_is_answered_briefly_is_judged_like_anybody_else(self, stage: Stage) -> None:
        """What else happened to the record, its owner need not hear. Whose it is, and how it ended, counts."""
        caller = await stage.caller()

        async def verdict(held: Record, result: bytes) -> Verdict:
            return (await caller.complete(held, result, omit_record=True)).verdict

        held = await caller.acquire()
        for nearly in (stranger(held, token=1), stranger(held, token=-1), stranger(held, nonce=b"0" * 16)):
            assert_equal(await verdict(nearly, b"one"), Verdict.LOST, "nearly the owner")
        expect(await caller.renew(held, note={"step": "two"}), Verdict.OK)
        assert_equal(await verdict(held, b"one"), Verdict.OK, "renewed meanwhile")
        assert_equal(await verdict(held, b"one"), Verdict.OK, "the same again")
        assert_equal(await verdict(held, b"two"), Verdict.CONFLICT, "another result")
        assert_equal((await caller.record()).result, b"one", "the result that stays")
        first = await stage.lapsed(caller, "taken over", after_crash=AfterCrash.VERIFY)
        second = await caller.acquire("taken over", after_crash=AfterCrash.VERIFY)
        assert_equal(await verdict(first, b"one"), Verdict.LOST, "replaced")
        expect(await caller.release(second), Verdict.OK)
        assert_equal(await verdict(second, b"one"), Verdict.LOST, "handed back unverified")

    @check()
    async def test_nobody_owns_a_key_that_was_never_claimed(self, stage: Stage) -> None:
        caller = await stage.caller()
        nobody = Record(id=b"\7" * 32, scope="kit", key="never", state=RecordState.PENDING, token=7, nonce=b"7" * 16)
        for verb, answer in (await caller.owners_verbs(nobody)).items():
            assert (answer.verdict, answer.record) == (Verdict.LOST, None), f"{verb} answers {answer}"
        assert await caller.look(id=nobody.id) is None, "a verb of an owner brought a record into being"

    @check(rival=(1,), fault=("F32", "F33"))
    async def test_a_late_owner_whom_nobody_replaced_may_still_do_everything(self, stage: Stage) -> None:
        caller = await stage.caller()
        held = await stage.lapsed(caller, "renewed")
        alive = expect(await caller.renew(held), Verdict.OK)
        assert_equal(alive.token, held.token, "the token of a late owner who renews")
        expect(await caller.claim("renewed"), Verdict.RUNNING)
        for name, settle in endings(caller).items():
            await settle(await stage.lapsed(caller, name))

    @check(rival=(1, 24))
    async def test_a_failure_leaves_the_record_and_its_attempts(self, stage: Stage) -> None:
        caller = await stage.caller()
        first = await caller.acquire()
        failed = expect(await caller.fail(first, error_type="ValueError", error="no"), Verdict.OK)
        assert_equal((failed.state, failed.attempt, failed.error), (RecordState.FAILED, 1, "no"), "after a failure")
        second = await caller.acquire()
        assert (second.attempt, second.cycle) == (2, first.cycle), "a retry is one more attempt of the same cycle"

    @check()
    async def test_a_parked_record_answers_its_late_owner_and_whoever_knows(self, stage: Stage) -> None:
        caller = await stage.caller()
        for name in ("late owner", "resolved"):
            held = await stage.lapsed(caller, name, after_crash=AfterCrash.PARK)
            parked = expect(await caller.claim(name), Verdict.PARKED)
            assert (parked.token, parked.nonce) == (held.token, held.nonce), "parking must not cut the late owner off"
            if name == "resolved":
                expect(await caller.resolve(parked, Resolution.NOT_APPLIED), Verdict.OK)
                await assert_powerless(stage, caller, held, name)
                expect(await caller.resolve(parked, Resolution.APPLIED), Verdict.LOST)
                await caller.acquire(name)
            else:
                expect(await caller.complete(held), Verdict.OK)

    @check(rival=(22,))
    async def test_tokens_grow_whatever_happens_to_a_key(self, stage: Stage) -> None:
        caller = await stage.caller()
        held = await caller.acquire()
        tokens = [held.token]

        async def again(lease: int = LEASE) -> Record:
            record = await caller.acquire(lease=lease)
            tokens.append(record.token)
            return record

        expect(await caller.release(held), Verdict.OK)
        expect(await caller.fail(await again()), Verdict.OK)
        await again(lease=SHORT)
        await stage.lapse()
        expect(await caller.complete(await again(), validity=Validity(lasting=1)), Verdict.OK)
        await stage.lapse(1)
        await again()
        expect(await caller.forget(force=True), Verdict.OK)
        expect(await caller.complete(await again()), Verdict.OK)
        expect(await caller.forget(), Verdict.OK)
        expect(await caller.park(await again()), Verdict.OK)
        tokens.append(expect(await caller.resolve(await caller.record(), Resolution.NOT_APPLIED), Verdict.OK).token)
        await again()
        assert_growing(tokens)

    @check(rival=(22,), fault=("F44", "F68"), needs=("fake_clock",))
    async def test_tokens_grow_across_purge_even_if_the_clock_is_set_back(self, stage: Stage) -> None:
        late, caller = await stage.callers(2)
        zombie = await late.acquire()
        expect(await caller.forget(force=True), Verdict.OK)
        stage.turn(HOUR + SECOND)
        assert_equal(await caller.purge(), 1, "old records that a purge finds")
        assert_equal(await caller.look(), None, "after the purge")
        for verb, answer in (await late.owners_verbs(zombie)).items():
            assert answer.verdict is Verdict.LOST, f"{verb} after the purge answers {answer.verdict}"
        stage.turn(-HOUR)
        held = await caller.acquire()
        assert_growing([zombie.token, held.token])
        assert held.cycle != zombie.cycle, "a new life of the key is a new cycle"
        await assert_powerless(stage, late, zombie)

    @check(fault=("F44",), needs=("fake_clock",))
    async def test_tokens_grow_while_the_clock_is_set_back_by_days(self, stage: Stage) -> None:
        caller = await stage.caller()
        tokens = []
        for _ in range(4):
            stage.turn(-DAY)
            held = await caller.acquire()
            tokens.append(held.token)
            expect(await caller.release(held), Verdict.OK)
        assert_growing(tokens)

    @check()
    async def test_forget_spares_a_live_owner_and_cuts_it_off_when_forced(self, stage: Stage) -> None:
        caller = await stage.caller()
        held = await caller.acquire()
        expect(await caller.forget(), Verdict.REFUSED)
        assert_same(held, await caller.record(), "after a refused forget")
        free = expect(await caller.forget(force=True), Verdict.OK)
        assert_equal(free.state, RecordState.FREE, "after a forced forget")
        await assert_powerless(stage, caller, held)
        fresh = await caller.acquire()
        assert (fresh.attempt, fresh.cycle != held.cycle) == (1, True), "after forget a key begins a new life"

    @check()
    async def test_nobody_forgets_or_resolves_what_they_did_not_see(self, stage: Stage) -> None:
        caller, person = await stage.callers(2)
        shown = await stage.lapsed(caller)
        seen = {shown.id: ExpectedRecord(shown.token, shown.state)}
        done = expect(await caller.complete(shown), Verdict.OK)  # late, under the same token
        expect(await person.forget(seen=seen, force=True), Verdict.LOST)
        cut_off = person.resolve(shown, Resolution.NOT_APPLIED, state_seen=RecordState.PENDING, force=True)
        expect(await cut_off, Verdict.LOST)
        assert_same(done, await person.record(), "after somebody decided on what they saw before")
        now_seen = {done.id: ExpectedRecord(done.token, done.state)}
        assert_equal(expect(await person.forget(seen=now_seen), Verdict.OK).state, RecordState.FREE, "after a look")


Settle = Callable[[Record], Awaitable[None]]


def endings(caller: Caller) -> dict[str, Settle]:
    """Every way in which an ownership may end, each as a call that insists on its success."""

    async def completed(held: Record) -> None:
        expect(await caller.complete(held, b"of the owner"), Verdict.OK)

    async def failed(held: Record) -> None:
        expect(await caller.fail(held, error="of the owner"), Verdict.OK)

    async def refused(held: Record) -> None:
        expect(await caller.fail(held, error="of the owner", final=True), Verdict.OK)

    async def parked(held: Record) -> None:
        expect(await caller.park(held, error="of the owner"), Verdict.OK)

    async def released(held: Record) -> None:
        expect(await caller.release(held), Verdict.OK)

    return {"completed": completed, "failed": failed, "refused": refused, "parked": parked, "released": released}


async def assert_powerless(stage: Stage, caller: Caller, held: Record, key: str = "key") -> None:
    """All verbs of this owner are refused, and neither the record nor what lies on disk moves."""
    before, raw = await caller.record(key), stage.raw(key)
    for verb, answer in (await caller.owners_verbs(held)).items():
        assert answer.verdict is Verdict.LOST, f"{verb} of a replaced owner answers {answer.verdict} instead of lost"
        assert_same(before, answer.record, f"{verb} of a replaced owner, in the answer")
    assert_same(before, await caller.record(key), "after the verbs of a replaced owner")
    assert raw == stage.raw(key), f"a replaced owner changed the raw record from {raw} to {stage.raw(key)}"


def assert_growing(tokens: list[int]) -> None:
    assert all(earlier < later for earlier, later in pairwise(tokens)), f"tokens must strictly grow: {tokens}"

"""The audit trail: whatever is changed by hand can be looked up later, and nothing else can."""

from __future__ import annotations

from functools import partial

from onceward.protocol.audit import AUDIT_RETENTION, AuditEntry, AuditSignature, signature
from onceward.protocol.record import Record
from onceward.protocol.requests import Answer, ExpectedRecord, Resolution, Verdict

from .factory import StoreFactory, check
from .stage import HOUR, SECOND, Caller, Stage, assert_equal, expect, id_of

WHO = "ann@host"
RESOLVED = signature("resolve", WHO, "the bank says so", "applied")
FORGOTTEN = signature("forget", WHO, "é 🦊\n\0")
PURGED = signature("purge", WHO)
SECRET = b"the result itself"


async def parked(caller: Caller, key: str = "key") -> Record:
    return expect(await caller.park(await caller.acquire(key)), Verdict.OK)


def about(signed: AuditSignature, before: Record, after: Answer) -> AuditEntry:
    """The entry that such a change must leave."""
    record = expect(after, Verdict.OK)
    return AuditEntry(
        at=after.now,
        verb=signed.verb,
        who=signed.who,
        why=signed.why,
        detail=signed.detail,
        id=record.id,
        scope=record.scope,
        key=record.key,
        state_before=before.state.value,
        state_after=record.state.value,
        token_before=before.token,
        token_after=record.token,
    )


class AuditChecks(StoreFactory):
    """Who, when, why and what, in the same step as the change."""

    @check()
    async def test_what_is_signed_is_in_the_audit_trail_with_what_it_changed(self, stage: Stage) -> None:
        caller = await stage.caller()
        before = await parked(caller)
        resolved = await caller.resolve(before, Resolution.APPLIED, result=SECRET, digest=b"d", signed=RESOLVED)
        wanted = [about(RESOLVED, before, resolved)]
        await stage.lapse()
        forgotten = await caller.forget(signed=FORGOTTEN)
        wanted.insert(0, about(FORGOTTEN, expect(resolved, Verdict.OK), forgotten))
        found = await caller.audit()
        assert_equal(found, wanted, "the trail, the newest first")
        assert SECRET.decode() not in repr(found), "a result is nobody's business but its owner's"

    @check(needs=("fake_clock",))
    async def test_a_signed_purge_is_one_entry_that_counts(self, stage: Stage) -> None:
        caller = await stage.caller()
        for number in range(5):
            expect(await caller.release(await caller.acquire(f"key {number}")), Verdict.OK)
        stage.turn(2 * HOUR)
        assert_equal(await caller.purge(3, signed=PURGED), 3, "records purged")
        assert_equal(await caller.purge(10, signed=PURGED), 2, "records purged")
        assert_equal(await caller.purge(10, signed=PURGED), 0, "records purged")
        entries = await caller.audit()
        assert_equal([(one.verb, one.who, one.id, one.count) for one in entries],
                     [("purge", WHO, b"", 2), ("purge", WHO, b"", 3)], "entries")  # fmt: skip
        assert_equal({one.at for one in entries}, {stage.clock.now()}, "times of the entries")

    @check(fault=("F41",))
    async def test_what_changed_nothing_or_was_not_signed_is_not_in_the_trail(self, stage: Stage) -> None:
        caller = await stage.caller()
        live, waiting = await caller.acquire("live"), await parked(caller, "parked")
        expect(await caller.forget("live", signed=FORGOTTEN), Verdict.REFUSED)
        unseen = {live.id: ExpectedRecord(live.token + 1, live.state)}
        expect(await caller.forget("live", force=True, seen=unseen, signed=FORGOTTEN), Verdict.LOST)
        expect(await caller.resolve(live, Resolution.APPLIED, signed=RESOLVED), Verdict.LOST)
        assert_equal((await caller.forget("never claimed", signed=FORGOTTEN)).verdict, Verdict.OK, "forget of nothing")
        await caller.purge(signed=PURGED)
        assert_equal(await caller.audit(), [], "the trail after what changed nothing")
        expect(await caller.resolve(waiting, Resolution.NOT_APPLIED), Verdict.OK)
        expect(await caller.forget("parked"), Verdict.OK)
        assert_equal(await caller.audit(), [], "the trail after what nobody signed")

    @check()
    async def test_the_trail_is_searched_by_record_scope_key_age_and_number(self, stage: Stage) -> None:
        caller = await stage.caller()
        for key in ("one", "two", "one"):
            await caller.acquire(key)
            await stage.lapse(SECOND if stage.fake else 5_000)
            expect(await caller.forget(key, force=True, signed=FORGOTTEN), Verdict.OK)
        entries = await caller.audit()
        assert_equal([one.key for one in entries], ["one", "two", "one"], "all of it")
        assert_equal([one.key for one in await caller.audit(limit=2)], ["one", "two"], "the newest two")
        assert_equal(await caller.audit(id=id_of("two")), entries[1:2], "by id")
        assert_equal(await caller.audit(key="one"), entries[::2], "by key")
        assert_equal(await caller.audit(scope="kit"), entries, "by scope")
        assert_equal(await caller.audit(scope="another"), [], "by another scope")
        assert_equal(await caller.audit(within=HOUR), entries, "of the last hour")
        if stage.fake is not None:
            age = stage.fake.now() - entries[1].at
            assert_equal(await caller.audit(within=age + 1), entries[:2], "not older than the second")
            assert_equal(await caller.audit(within=age), entries[:1], "younger than the second")

    @check(rival=(18,))
    async def test_of_many_who_resolve_at_once_only_the_one_who_did_is_in_the_trail(self, stage: Stage) -> None:
        people = await stage.callers(4)
        for number in range(5):
            waiting = await parked(people[0], f"key {number}")
            jobs = [partial(abandon, person, waiting, f"person {n}") for n, person in enumerate(people)]
            verdicts = [answer.verdict for answer in await stage.together(jobs)]
            winners = [f"person {n}" for n, verdict in enumerate(verdicts) if verdict is Verdict.OK]
            entries = await people[0].audit(id=waiting.id)
            assert_equal([one.who for one in entries], winners, "who is in the trail")
            assert_equal(len(winners), 1, "how many resolved it")

    @check(needs=("durable",))
    async def test_the_trail_outlives_the_store(self, stage: Stage) -> None:
        caller = await stage.caller()
        await caller.acquire()
        expect(await caller.forget(force=True, signed=FORGOTTEN), Verdict.OK)
        before = await caller.audit()
        await stage.dismiss(caller)
        assert_equal(await (await stage.caller()).audit(), before, "the trail, after closing and opening again")
        assert_equal([one.why for one in before], [FORGOTTEN.why], "why")

    @check(mission=("E7",), needs=("fake_clock",))
    async def test_the_trail_is_kept_for_long_but_not_for_ever(self, stage: Stage) -> None:
        caller = await stage.caller()
        await caller.acquire()
        expect(await caller.forget(force=True, signed=FORGOTTEN), Verdict.OK)
        stage.turn(AUDIT_RETENTION - SECOND)
        await caller.purge()
        assert_equal(await caller.look(), None, "a record that was forgotten 400 days ago, after a purge")
        assert_equal(len(await caller.audit()), 1, "entries, a second before they may go")
        stage.turn(SECOND)
        await caller.purge()
        assert_equal(await caller.audit(), [], "entries, after they may go")


async def abandon(person: Caller, waiting: Record, who: str) -> Answer:
    return await person.resolve(waiting, Resolution.ABANDON, signed=signature("resolve", who))

"""The audit trail: it contains every manual change, and nothing else."""

from __future__ import annotations

from functools import partial

from onceward.protocol.audit import AUDIT_RETENTION, AuditEntry, AuditSignature, audit_entries, signature
from onceward.protocol.record import Record
from onceward.protocol.requests import Answer, ExpectedRecord, Resolution, Verdict

from .factory import StoreFactory, check
from .harness import HOUR, SECOND, Caller, Harness, assert_equal, expect, id_of

WHO = "ann@host"
RESOLVED = signature("resolve", WHO, "the bank says so", "applied")
FORGOTTEN = signature("forget", WHO, "é 🦊\n\0")
PURGED = signature("purge", WHO)
SECRET = b"the result itself"


async def park_key(caller: Caller, key: str = "key") -> Record:
    return expect(await caller.park(await caller.acquire(key)), Verdict.OK)


def expected_entry(signed: AuditSignature, before: Record, after: Answer) -> AuditEntry:
    """Return the audit entry that this change must create."""
    expect(after, Verdict.OK)
    [entry] = audit_entries(signed, lambda _: before, [after])
    return entry


class AuditChecks(StoreFactory):
    """An entry says who changed what, when and why, and is written in the same step as the change."""

    @check()
    async def test_a_signed_change_is_in_the_audit_trail(self, harness: Harness) -> None:
        caller = await harness.caller()
        before = await park_key(caller)
        resolved = await caller.resolve(before, Resolution.APPLIED, result=SECRET, digest=b"d", signed=RESOLVED)
        wanted = [expected_entry(RESOLVED, before, resolved)]
        await harness.elapse()
        forgotten = await caller.forget(signed=FORGOTTEN)
        wanted.insert(0, expected_entry(FORGOTTEN, expect(resolved, Verdict.OK), forgotten))
        found = await caller.audit()
        assert_equal(found, wanted, "the trail, newest entry first")
        assert SECRET.decode() not in repr(found), "the audit trail must not contain results"

    @check(needs=("fake_clock",))
    async def test_a_signed_purge_is_one_entry_with_a_count(self, harness: Harness) -> None:
        caller = await harness.caller()
        for number in range(5):
            expect(await caller.release(await caller.acquire(f"key {number}")), Verdict.OK)
        harness.move_clock(2 * HOUR)
        assert_equal(await caller.purge(3, signed=PURGED), 3, "records purged")
        assert_equal(await caller.purge(10, signed=PURGED), 2, "records purged")
        assert_equal(await caller.purge(10, signed=PURGED), 0, "records purged")
        entries = await caller.audit()
        assert_equal([(one.verb, one.who, one.id, one.count) for one in entries],
                     [("purge", WHO, b"", 2), ("purge", WHO, b"", 3)], "entries")  # fmt: skip
        assert_equal({one.at for one in entries}, {harness.clock.now()}, "times of the entries")

    @check(fault=("F41",))
    async def test_unsigned_and_ineffective_calls_are_not_in_the_trail(self, harness: Harness) -> None:
        caller = await harness.caller()
        live, waiting = await caller.acquire("live"), await park_key(caller, "parked")
        expect(await caller.forget("live", signed=FORGOTTEN), Verdict.REFUSED)
        outdated = {live.id: ExpectedRecord(live.token + 1, live.state)}
        expect(await caller.forget("live", force=True, seen=outdated, signed=FORGOTTEN), Verdict.LOST)
        expect(await caller.resolve(live, Resolution.APPLIED, signed=RESOLVED), Verdict.LOST)
        assert_equal(
            (await caller.forget("never claimed", signed=FORGOTTEN)).verdict, Verdict.OK, "forget of a missing record"
        )
        await caller.purge(signed=PURGED)
        assert_equal(await caller.audit(), [], "the trail after calls that changed nothing")
        expect(await caller.resolve(waiting, Resolution.NOT_APPLIED), Verdict.OK)
        expect(await caller.forget("parked"), Verdict.OK)
        assert_equal(await caller.audit(), [], "the trail after unsigned changes")

    @check()
    async def test_the_trail_can_be_filtered(self, harness: Harness) -> None:
        caller = await harness.caller()
        for key in ("one", "two", "one"):
            await caller.acquire(key)
            await harness.elapse(SECOND if harness.fake_clock else 5_000)
            expect(await caller.forget(key, force=True, signed=FORGOTTEN), Verdict.OK)
        entries = await caller.audit()
        assert_equal([one.key for one in entries], ["one", "two", "one"], "all entries")
        assert_equal([one.key for one in await caller.audit(limit=2)], ["one", "two"], "the newest two")
        assert_equal(await caller.audit(id=id_of("two")), entries[1:2], "by id")
        assert_equal(await caller.audit(ids=(id_of("two"), id_of("none"))), entries[1:2], "by several ids")
        assert_equal(await caller.audit(ids=(id_of("one"), id_of("two"))), entries, "by the ids of all")
        assert_equal(await caller.audit(key="one"), entries[::2], "by key")
        assert_equal(await caller.audit(scope="kit"), entries, "by scope")
        assert_equal(await caller.audit(scope="another"), [], "by another scope")
        assert_equal(await caller.audit(within=HOUR), entries, "within the last hour")
        if harness.fake_clock is not None:
            age = harness.fake_clock.now() - entries[1].at
            assert_equal(await caller.audit(within=age + 1), entries[:2], "not older than the second")
            assert_equal(await caller.audit(within=age), entries[:1], "younger than the second")

    @check(rival=(18,))
    async def test_of_concurrent_resolutions_only_the_winner_is_in_the_trail(self, harness: Harness) -> None:
        operators = await harness.callers(4)
        for number in range(5):
            waiting = await park_key(operators[0], f"key {number}")
            jobs = [partial(abandon, operator, waiting, f"operator {n}") for n, operator in enumerate(operators)]
            verdicts = [answer.verdict for answer in await harness.run_concurrently(jobs)]
            winners = [f"operator {n}" for n, verdict in enumerate(verdicts) if verdict is Verdict.OK]
            entries = await operators[0].audit(id=waiting.id)
            assert_equal([one.who for one in entries], winners, "operators in the trail")
            assert_equal(len(winners), 1, "number of successful resolutions")

    @check(needs=("durable",))
    async def test_the_trail_survives_reopening(self, harness: Harness) -> None:
        caller = await harness.caller()
        await caller.acquire()
        expect(await caller.forget(force=True, signed=FORGOTTEN), Verdict.OK)
        before = await caller.audit()
        await harness.close_caller(caller)
        assert_equal(await (await harness.caller()).audit(), before, "the trail, after reopening the store")
        assert_equal([one.why for one in before], [FORGOTTEN.why], "why")

    @check(mission=("E7",), needs=("fake_clock",))
    async def test_the_trail_expires_after_its_retention(self, harness: Harness) -> None:
        caller = await harness.caller()
        await caller.acquire()
        expect(await caller.forget(force=True, signed=FORGOTTEN), Verdict.OK)
        harness.move_clock(AUDIT_RETENTION - SECOND)
        await caller.purge()
        assert_equal(await caller.read(), None, "a record that was forgotten 400 days before the purge")
        assert_equal(len(await caller.audit()), 1, "entries, one second before the end of the retention")
        harness.move_clock(SECOND)
        await caller.purge()
        assert_equal(await caller.audit(), [], "entries, after the retention")


async def abandon(operator: Caller, waiting: Record, who: str) -> Answer:
    return await operator.resolve(waiting, Resolution.ABANDON, signed=signature("resolve", who))

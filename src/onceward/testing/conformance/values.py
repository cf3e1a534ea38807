"""Values: whatever was written comes back, byte for byte, and nothing looks empty, absent or equal that is not."""

from __future__ import annotations

from typing import Any

from onceward.protocol import transitions
from onceward.protocol.record import AfterCrash, RecordState
from onceward.protocol.requests import Complete, Validity, Verdict

from .factory import StoreFactory, check
from .stage import DAY, SECOND, TIMEOUT, Stage, assert_equal, assert_same, expect, id_of, wanting

RESULTS: dict[str, bytes | None] = {
    "none": None,
    "empty": b"",
    "nul": b"\0",
    "zero": b"0",
    "null": b"null",
    "every byte": bytes(range(256)),
    "not utf-8": b"\xff\xfe\xc3(",
}

TEXTS = [
    "",
    " ",
    " trailing ",
    "0",
    "é",
    "e\u0301",
    "NUL \0 inside",
    "🦊\u202e",
    "'; DROP TABLE records; --",
    "{}",
    "x" * 10_000,
]

LOOK_EQUAL = [
    b"a" * 32, b"A" * 32, b"a" * 31 + b" ", b"a" * 31 + b"\0", b"a" * 31 + b"b",
    b"\0" * 32, b"\0" * 31 + b"\1", b"\xff" * 32, "é".encode() * 16, b"1" * 32, b"\x01" * 32,
]  # fmt: skip
"""Ids that a collation, a C string or a number would take for one another."""

END_OF_9999 = 253_402_300_799_999_999
"""Beyond 2**53: a store that keeps times as floating point gives back another one."""


UNLIKE: list[dict[str, Any]] = [
    {}, {"lease": 2 * DAY}, {"lease": None}, {"after_crash": AfterCrash.PARK}, {"max_attempts": 7},
    {"owner": "another"}, {"scope": "another"}, {"arguments": {"cents": "12"}}, {"note": {"step": "one"}},
    {"fingerprint": b"f" * 32}, {},
]  # fmt: skip
"""Claims of one batch, each with something of its own."""

ENDS: list[dict[str, Any]] = [
    {}, {"validity": Validity(until=END_OF_9999)}, {"stored": False}, {"result": b"some"}, {"digest": b"another"},
    {"validity": Validity(lasting=DAY)}, {"validity": Validity(lasting=2 * DAY)},
    {"validity": Validity(lasting=DAY, slide=DAY)}, {"validity": Validity(lasting=DAY)}, {"result": b""}, {},
]  # fmt: skip
"""And their completions."""


class ValueChecks(StoreFactory):
    """What is stored is what is read."""

    @check(mission=("B3",), rival=(2,), fault=("F20",))
    async def test_every_result_replays_as_it_was(self, stage: Stage) -> None:
        writer, reader = await stage.callers(2)
        for name, result in {**RESULTS, "large": bytes(range(256)) * (self.largest // 256)}.items():
            done = expect(await writer.complete(await writer.acquire(name), result), Verdict.OK)
            replayed = expect(await reader.claim(name), Verdict.REPLAY)
            assert replayed.result == result, f"{name}: {replayed.result!r:.80} came back"
            assert type(replayed.result) is type(result), f"{name} came back as {type(replayed.result)}"
            assert replayed.stored is True, f"{name} came back as not stored"
            assert_same(done, replayed, name)
            assert_same(done, await reader.record(name), name)

    @check()
    async def test_a_completion_answers_with_what_is_there_not_with_what_its_owner_has(self, stage: Stage) -> None:
        caller = await stage.caller()
        held = await caller.acquire()
        expect(await caller.renew(held, note={"step": "two"}), Verdict.OK)
        done = expect(await caller.complete(held), Verdict.OK)
        assert_equal(done.note, {"step": "two"}, "a note that was written by a call whose answer never came")
        assert_same(done, await caller.record(), "a completion by somebody who has an older record")

    @check()
    async def test_each_of_a_batch_is_judged_by_its_own_request(self, stage: Stage) -> None:
        """What most of them have in common a store may send or make once; where one differs, that counts."""
        caller = await stage.caller()
        before = [await caller.acquire(f"before {number}", max_attempts=number) for number in (1, 2)]
        claims = [wanting(f"key {number}", **how) for number, how in enumerate(UNLIKE)]
        held = []
        for claim, answer in zip(claims, await caller.store.claim(claims, timeout=TIMEOUT), strict=True):
            held.append(expect(answer, Verdict.ACQUIRED))
            assert_same(transitions.claim(None, claim, answer.now)[0], answer.record, f"the claim of {claim.key}")
        owned = [*held, *before]
        completions = [
            Complete(one.id, one.token, one.nonce, of=one, **{"digest": b"d", **how})
            for one, how in zip(owned, [*ENDS, {}, {}], strict=True)
        ]
        for one, completion, answer in zip(
            owned, completions, await caller.store.settle(completions, timeout=TIMEOUT), strict=True
        ):
            done = expect(answer, Verdict.OK)
            assert_same(transitions.settle(one, completion, answer.now)[0], done, f"the completion of {one.key}")
            assert_same(done, await caller.record(one.key, id=one.id), f"what is left of {one.key}")

    @check()
    async def test_a_completion_answers_with_the_end_that_is_kept(self, stage: Stage) -> None:
        """A store may not reach as far as it was asked to, and says so."""
        caller = await stage.caller()
        for years in (100, 250, 300, 1000):
            held = await caller.acquire(f"{years} years")
            done = expect(await caller.complete(held, validity=Validity(lasting=years * 365 * DAY)), Verdict.OK)
            assert_same(done, await caller.record(f"{years} years"), f"a window of {years} years")

    @check()
    async def test_the_record_that_a_completion_carries_is_no_proof_of_ownership(self, stage: Stage) -> None:
        caller = await stage.caller()
        another = await caller.acquire("another", note={"of": "another"})
        held = await caller.acquire()
        stranger = Complete(held.id, held.token, b"not the nonce".ljust(len(held.nonce)), digest=b"d", of=held)
        expect(await caller.settle(stranger), Verdict.LOST)
        own = Complete(held.id, held.token, held.nonce, digest=b"d", of=another)
        done = expect(await caller.settle(own), Verdict.OK)
        assert_same(done, await caller.record(), "a completion that carries another record")
        assert_same(another, await caller.record("another"), "the other record")

    @check()
    async def test_a_completion_that_is_answered_briefly_is_one_all_the_same(self, stage: Stage) -> None:
        caller = await stage.caller()
        held = await caller.acquire()
        answer = await caller.complete(held, b"brief", omit_record=True)
        assert_equal(answer.verdict, Verdict.OK, "a completion that is to be answered briefly")
        written = await caller.record()
        assert_equal((written.state, written.result), (RecordState.COMPLETED, b"brief"), "what it has written")
        if answer.record is not None:
            assert_same(answer.record, written, "a record that was not asked for")
        assert_equal(expect(await caller.claim(), Verdict.REPLAY).result, b"brief", "its replay")

    @check(rival=(13,), fault=("F21",))
    async def test_a_result_that_was_not_kept_is_not_a_result_of_none(self, stage: Stage) -> None:
        caller = await stage.caller()
        expect(await caller.complete(await caller.acquire(), None, stored=False), Verdict.OK)
        replayed = expect(await caller.claim(), Verdict.REPLAY)
        assert_equal((replayed.result, replayed.stored), (None, False), "a result that was not kept")

    @check()
    async def test_every_text_comes_back_as_it_was(self, stage: Stage) -> None:
        writer, reader = await stage.callers(2)
        for number, text in enumerate(TEXTS):
            key = f"text {number}"
            note = {"plain": text, text: "as a name"}
            held = await writer.acquire(key, owner=text, note=note, arguments={text: "1a"})
            failed = expect(await writer.fail(held, error_type=text, error=text, note={"more": text}), Verdict.OK)
            seen = await reader.record(key)
            assert_same(failed, seen, f"{text!r:.40}")
            assert_equal((seen.error, seen.error_type, seen.owner), (text, text, text), "error, its type, and owner")
            assert_equal(seen.note, {**note, "more": text}, "the note")

    @check(fault=("F1", "F2", "F6"))
    async def test_readable_keys_and_scopes_are_text_like_any_other(self, stage: Stage) -> None:
        caller = await stage.caller()
        for number, text in enumerate(TEXTS):
            id = id_of(f"{number}")
            request = wanting(text, scope=text, id=id)
            expect(await caller.send(request), Verdict.ACQUIRED)
            seen = await caller.record(id=id)
            assert_equal((seen.key, seen.scope), (text, text), "key and scope")

    @check(rival=(23,), fault=("F1", "F6", "F9"))
    async def test_the_id_alone_decides_whether_two_keys_are_one(self, stage: Stage) -> None:
        caller = await stage.caller()
        requests = [wanting("looks the same", id=id) for id in LOOK_EQUAL]
        for answer in await caller.store.claim(requests, timeout=TIMEOUT):
            expect(answer, Verdict.ACQUIRED)
        for request in requests:
            seen = await caller.record(id=request.id)
            assert_equal((seen.id, seen.nonce), (request.id, request.nonce), "the record under an id")

    @check(fault=("F42",))
    async def test_a_missing_lease_is_held_not_free(self, stage: Stage) -> None:
        caller = await stage.caller()
        held = await caller.acquire(lease=None)
        assert_equal(held.lease_until, None, "a claim without a lease")
        await stage.lapse(365 * DAY if stage.fake else 1)
        expect(await caller.claim(), Verdict.RUNNING)
        expect(await caller.forget(), Verdict.REFUSED)
        assert_equal(await caller.purge(), 0, "purge of a record without a lease")
        renewed = expect(await caller.renew(held), Verdict.OK)
        assert renewed.lease_until is None, "a renewal must not give a lease to a claim that has none"
        expect(await caller.complete(held), Verdict.OK)

    @check(mission=("B1",), rival=(5,), fault=("F18",))
    async def test_another_payload_is_a_mismatch_in_every_state(self, stage: Stage) -> None:
        caller = await stage.caller()
        for state in (RecordState.PENDING, RecordState.COMPLETED, RecordState.FAILED, RecordState.PARKED, "lapsed"):
            key = f"{state}"
            lease = {"lease": 1} if state == "lapsed" else {}
            held = await caller.acquire(key, fingerprint=b"\1one", **lease)
            await stage.lapse(1)
            if state is RecordState.COMPLETED:
                expect(await caller.complete(held), Verdict.OK)
            elif state is RecordState.FAILED:
                expect(await caller.fail(held), Verdict.OK)
            elif state is RecordState.PARKED:
                expect(await caller.park(held), Verdict.OK)
            before = await caller.record(key)
            shown = expect(await caller.claim(key, fingerprint=b"\1two"), Verdict.MISMATCH)
            assert_same(before, shown, f"a mismatch while {state}")
            answer = await caller.claim(key, fingerprint=b"\1one")
            assert answer.verdict is not Verdict.MISMATCH, f"the same payload is refused while {state}"

    @check(fault=("F16",))
    async def test_large_numbers_stay_exact(self, stage: Stage) -> None:
        caller = await stage.caller()
        held = await caller.acquire(max_attempts=2**31 - 1)
        validity = Validity(until=END_OF_9999, slide=3_000 * 365 * DAY + 1)
        settled = Complete(held.id, held.token, held.nonce, result=b"", validity=validity)
        expect(await caller.settle(settled), Verdict.OK)
        seen = await caller.record()
        numbers = (seen.valid_until, seen.slide, seen.max_attempts, seen.token)
        assert_equal(
            numbers, (END_OF_9999, validity.slide, 2**31 - 1, held.token), "valid_until, slide, max_attempts, token"
        )

    @check(rival=(26,))
    async def test_a_sliding_window_moves_with_its_replays(self, stage: Stage) -> None:
        caller = await stage.caller()
        slide = 8 * SECOND if stage.fake else 800_000
        validity = Validity(lasting=slide, slide=slide)
        done = expect(await caller.complete(await caller.acquire(), validity=validity), Verdict.OK)
        assert_same(done, expect(await caller.claim(), Verdict.REPLAY), "a replay in the first eighth writes nothing")
        await stage.lapse(slide // 4)
        answer = await caller.claim()
        moved = expect(answer, Verdict.REPLAY)
        assert moved.valid_until == answer.now + slide, "a replay after an eighth extends the window"
        assert_same(moved, await caller.record(), "what a replay has moved")
        await stage.lapse(2 * slide)
        assert (await caller.acquire()).cycle != done.cycle, "after its window a key begins a new life"

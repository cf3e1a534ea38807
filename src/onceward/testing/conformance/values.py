"""Values are returned as they were written, byte for byte; different values are never treated as equal or empty."""

from __future__ import annotations

from typing import Any

from onceward.protocol import transitions
from onceward.protocol.record import AfterCrash, RecordState
from onceward.protocol.requests import Complete, Validity, Verdict

from .factory import StoreFactory, check
from .harness import DAY, SECOND, TIMEOUT, Harness, assert_equal, assert_same, claim_request, expect, id_of

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

SIMILAR_IDS = [
    b"a" * 32, b"A" * 32, b"a" * 31 + b" ", b"a" * 31 + b"\0", b"a" * 31 + b"b",
    b"\0" * 32, b"\0" * 31 + b"\1", b"\xff" * 32, "é".encode() * 16, b"1" * 32, b"\x01" * 32,
]  # fmt: skip
"""Ids that a collation, a C string or a number would treat as equal."""

END_OF_9999 = 253_402_300_799_999_999
"""Greater than 2**53: a store that stores times as floating point numbers returns another value."""


DIFFERENT_CLAIMS: list[dict[str, Any]] = [
    {}, {"lease": 2 * DAY}, {"lease": None}, {"after_crash": AfterCrash.PARK}, {"max_attempts": 7},
    {"owner": "another"}, {"scope": "another"}, {"arguments": {"cents": "12"}}, {"note": {"step": "one"}},
    {"fingerprint": b"f" * 32}, {},
]  # fmt: skip
"""Claims of one batch, each with different settings."""

DIFFERENT_COMPLETIONS: list[dict[str, Any]] = [
    {}, {"validity": Validity(until=END_OF_9999)}, {"stored": False}, {"result": b"some"}, {"digest": b"another"},
    {"validity": Validity(lasting=DAY)}, {"validity": Validity(lasting=2 * DAY)},
    {"validity": Validity(lasting=DAY, slide=DAY)}, {"validity": Validity(lasting=DAY)}, {"result": b""}, {},
]  # fmt: skip
"""The completions of these claims."""


class ValueChecks(StoreFactory):
    """Values are read as they were written."""

    @check(mission=("B3",), rival=(2,), fault=("F20",))
    async def test_every_result_is_replayed_unchanged(self, harness: Harness) -> None:
        writer, reader = await harness.callers(2)
        for name, result in {**RESULTS, "large": bytes(range(256)) * (self.max_result_size // 256)}.items():
            done = expect(await writer.complete(await writer.acquire(name), result), Verdict.OK)
            replayed = expect(await reader.claim(name), Verdict.REPLAY)
            assert replayed.result == result, f"{name}: returned as {replayed.result!r:.80}"
            assert type(replayed.result) is type(result), f"{name}: returned as {type(replayed.result)}"
            assert replayed.stored is True, f"{name}: returned as not stored"
            assert_same(done, replayed, name)
            assert_same(done, await reader.record(name), name)

    @check()
    async def test_a_completion_keeps_a_note_that_its_owner_does_not_know(self, harness: Harness) -> None:
        caller = await harness.caller()
        held = await caller.acquire()
        expect(await caller.renew(held, note={"step": "two"}), Verdict.OK)
        done = expect(await caller.complete(held), Verdict.OK)
        assert_equal(done.note, {"step": "two"}, "a note written by a call whose reply was lost")
        assert_same(done, await caller.record(), "a completion by an owner with an outdated copy of the record")

    @check()
    async def test_each_request_of_a_batch_uses_its_own_settings(self, harness: Harness) -> None:
        """A store may send common settings once per batch. The settings of each request still apply."""
        caller = await harness.caller()
        before = [await caller.acquire(f"before {number}", max_attempts=number) for number in (1, 2)]
        claims = [claim_request(f"key {number}", **how) for number, how in enumerate(DIFFERENT_CLAIMS)]
        held = []
        for claim, answer in zip(claims, await caller.store.claim(claims, timeout=TIMEOUT), strict=True):
            held.append(expect(answer, Verdict.ACQUIRED))
            assert_same(transitions.claim(None, claim, answer.now)[0], answer.record, f"the claim of {claim.key}")
        owned = [*held, *before]
        completions = [
            Complete(one.id, one.token, one.nonce, **{"digest": b"d", **how})
            for one, how in zip(owned, [*DIFFERENT_COMPLETIONS, {}, {}], strict=True)
        ]
        for one, completion, answer in zip(
            owned, completions, await caller.store.settle(completions, timeout=TIMEOUT), strict=True
        ):
            assert_equal(answer.verdict, Verdict.OK, f"the completion of {one.key}")
            wanted = transitions.settle(one, completion, answer.now)[0]
            assert_same(wanted, await caller.record(one.key, id=one.id), f"the stored record of {one.key}")

    @check()
    async def test_a_completion_returns_the_stored_end_of_its_window(self, harness: Harness) -> None:
        """A store may shorten a very long window, but must return the end that it stored."""
        caller = await harness.caller()
        for years in (100, 250, 300, 1000):
            held = await caller.acquire(f"{years} years")
            done = expect(await caller.complete(held, validity=Validity(lasting=years * 365 * DAY)), Verdict.OK)
            assert_same(done, await caller.record(f"{years} years"), f"a window of {years} years")

    @check(rival=(13,), fault=("F21",))
    async def test_a_result_that_was_not_stored_differs_from_none(self, harness: Harness) -> None:
        caller = await harness.caller()
        expect(await caller.complete(await caller.acquire(), None, stored=False), Verdict.OK)
        replayed = expect(await caller.claim(), Verdict.REPLAY)
        assert_equal((replayed.result, replayed.stored), (None, False), "a result that was not stored")

    @check()
    async def test_every_text_is_returned_unchanged(self, harness: Harness) -> None:
        writer, reader = await harness.callers(2)
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
    async def test_keys_and_scopes_may_be_any_text(self, harness: Harness) -> None:
        caller = await harness.caller()
        for number, text in enumerate(TEXTS):
            id = id_of(f"{number}")
            request = claim_request(text, scope=text, id=id)
            expect(await caller.send(request), Verdict.ACQUIRED)
            seen = await caller.record(id=id)
            assert_equal((seen.key, seen.scope), (text, text), "key and scope")

    @check(rival=(23,), fault=("F1", "F6", "F9"))
    async def test_only_the_id_identifies_a_record(self, harness: Harness) -> None:
        caller = await harness.caller()
        requests = [claim_request("looks the same", id=id) for id in SIMILAR_IDS]
        for answer in await caller.store.claim(requests, timeout=TIMEOUT):
            expect(answer, Verdict.ACQUIRED)
        for request in requests:
            seen = await caller.record(id=request.id)
            assert_equal((seen.id, seen.nonce), (request.id, request.nonce), "the record under an id")

    @check(fault=("F42",))
    async def test_a_claim_without_a_lease_never_expires(self, harness: Harness) -> None:
        caller = await harness.caller()
        held = await caller.acquire(lease=None)
        assert_equal(held.lease_until, None, "a claim without a lease")
        await harness.elapse(365 * DAY if harness.fake_clock else 1)
        expect(await caller.claim(), Verdict.RUNNING)
        expect(await caller.forget(), Verdict.REFUSED)
        assert_equal(await caller.purge(), 0, "purge of a record without a lease")
        renewed = expect(await caller.renew(held), Verdict.OK)
        assert renewed.lease_until is None, "a renewal must not give a lease to a claim that has none"
        expect(await caller.complete(held), Verdict.OK)

    @check(mission=("B1",), rival=(5,), fault=("F18",))
    async def test_another_payload_is_a_mismatch_in_every_state(self, harness: Harness) -> None:
        caller = await harness.caller()
        for state in (RecordState.PENDING, RecordState.COMPLETED, RecordState.FAILED, RecordState.PARKED, "lapsed"):
            key = f"{state}"
            lease = {"lease": 1} if state == "lapsed" else {}
            held = await caller.acquire(key, fingerprint=b"\1one", **lease)
            await harness.elapse(1)
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
    async def test_large_numbers_stay_exact(self, harness: Harness) -> None:
        caller = await harness.caller()
        held = await caller.acquire(max_attempts=2**31 - 1)
        validity = Validity(until=END_OF_9999, slide=3_000 * 365 * DAY + 1)
        expect(await caller.complete(held, b"", validity=validity), Verdict.OK)
        seen = await caller.record()
        numbers = (seen.valid_until, seen.slide, seen.max_attempts, seen.token)
        assert_equal(
            numbers, (END_OF_9999, validity.slide, 2**31 - 1, held.token), "valid_until, slide, max_attempts, token"
        )

    @check(rival=(26,))
    async def test_a_sliding_window_moves_with_its_replays(self, harness: Harness) -> None:
        caller = await harness.caller()
        slide = 8 * SECOND if harness.fake_clock else 800_000
        validity = Validity(lasting=slide, slide=slide)
        done = expect(await caller.complete(await caller.acquire(), validity=validity), Verdict.OK)
        assert_same(done, expect(await caller.claim(), Verdict.REPLAY), "a replay in the first eighth writes nothing")
        await harness.elapse(slide // 4)
        answer = await caller.claim()
        moved = expect(answer, Verdict.REPLAY)
        assert moved.valid_until == answer.now + slide, "a replay after an eighth extends the window"
        assert_same(moved, await caller.record(), "the record after a replay extended its window")
        await harness.elapse(2 * slide)
        assert (await caller.acquire()).cycle != done.cycle, "a claim after the window must start a new cycle"

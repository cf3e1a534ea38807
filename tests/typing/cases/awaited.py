"""What type checkers see of `AsyncOnce`, and of `Once` on async functions. Never run, only read by them."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import assert_type

from onceward import AsyncClaim, AsyncOnce, Entry, Key, Once, Outcome, RecordState, applied, current_async_claim
from onceward.locks import AsyncHeldLock, AsyncLock
from onceward.operations import AsyncFunction, Function

once = AsyncOnce("memory://", app="shop")
blocking = Once("memory://", app="shop")


@dataclass
class Receipt:
    number: int


@once
async def charge(order: str, amount: int = 1) -> Receipt:
    return Receipt(len(order) + amount)


@once(key="charge:{order}", window="forever")
async def charge_by_key(order: str) -> Receipt:
    return Receipt(len(order))


@once(on_running="skip")
async def skip_running(order: str) -> Receipt:
    return Receipt(len(order))


@once(on_done="skip")
async def skip_done(order: str) -> Receipt:
    return Receipt(len(order))


# `Once` runs async functions through its async client.
@blocking
async def awaited(order: str) -> Receipt:
    return Receipt(len(order))


@blocking(key="awaited:{order}", on_done="skip")
async def awaited_or_skipped(order: str) -> Receipt:
    return Receipt(len(order))


@blocking
def plain(order: str) -> Receipt:
    return Receipt(len(order))


def not_async(order: str) -> Receipt:
    return Receipt(len(order))


once(not_async)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
once(key="x")(not_async)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


class Till:
    """Async methods keep their signature without `self`."""

    @once(key="take:{order}")
    async def take(self, order: str, amount: int = 1) -> Receipt:
        return Receipt(len(order) + amount)

    @blocking(key="skip:{order}", on_done="skip")
    async def skipping(self, order: str) -> Receipt:
        return Receipt(len(order))

    @staticmethod
    @once
    async def static(order: str) -> int:
        return len(order)


async def double(number: int) -> int:
    return 2 * number


async def functions() -> None:
    assert_type(await charge("A", 2), Receipt)
    assert_type(await charge_by_key(order="A"), Receipt)
    assert_type(await charge.outcome("A"), Outcome[Receipt])
    assert_type((await charge.outcome("A")).unwrap(), Receipt)
    assert_type(charge.key("A"), Key)
    assert_type(await charge.read("A"), Entry | None)
    assert_type(await charge.forget("A"), bool)
    assert_type(await skip_running("A"), Receipt | None)
    assert_type(await skip_done("A"), Receipt | None)
    assert_type(await awaited("A"), Receipt)
    assert_type(await awaited.outcome("A"), Outcome[Receipt])
    assert_type(await awaited_or_skipped("A"), Receipt | None)
    as_callable: Callable[[str], Awaitable[Receipt]] = charge
    as_function: AsyncFunction[[str], Receipt] = awaited
    as_plain: Function[[str], Receipt] = plain
    await as_callable("A")
    await as_function("A")
    as_plain("A")

    await charge(1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await charge()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await awaited(1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await charge.outcome(1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await plain("A")  # type: ignore[misc]  # pyright: ignore[reportGeneralTypeIssues]
    number = (await skip_done("A")).number  # type: ignore[union-attr]  # pyright: ignore[reportOptionalMemberAccess]
    wrong: int = await charge("A")  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    del wrong, number


async def methods() -> None:
    till = Till()
    assert_type(await till.take("A", 2), Receipt)
    assert_type(await till.take.outcome("A"), Outcome[Receipt])
    assert_type(await till.skipping("A"), Receipt | None)
    assert_type(await Till.static("A"), int)
    await till.take(1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await till.take()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


async def verbs() -> None:
    assert_type(await once.run("k", double, 4), int)
    assert_type(await once.outcome("k", double, number=4), Outcome[int])
    assert_type(await once.map(double, [1, 2], key="d:{number}"), list[Outcome[int]])
    assert_type(await once.map(charge, ["A", "B"]), list[Outcome[Receipt]])
    assert_type(await blocking.aio.run("k", double, 4), int)
    await once.run("k", double, "4")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await once.run("k", not_async, "A")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await once.map(double, ["1"])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    async with once.claim("k", payload={"a": 1}, lease="1m") as claim:
        assert_type(claim, AsyncClaim)
        assert_type(claim.token, int)
        assert_type(claim.derived_key("charge"), str)
        claim.check()
        await claim.annotate(source_path="a.pdf")
        await claim.annotate(source_path=1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        await claim.complete(7)

    async with once.within(sqlite3.connect("x.db")) as tx:
        assert_type(await tx.run("k", double, 4), int)
        assert_type(await tx.call(charge, "A", 2), Receipt)
        await tx.call(charge, 1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    entry = await once.read("k")
    if entry is not None:
        assert_type(entry.state, RecordState)
    assert_type(current_async_claim(), AsyncClaim)
    await once.resolve("k", applied(7))
    assert_type(once.using(tenant="other"), AsyncOnce)
    assert_type(await once.forget("k", force=True), bool)
    assert_type(await once.purge(), int)
    receipts = once.state("receipts", Receipt)
    assert_type(await receipts.delete("A", "2026-03-01T08:05Z"), Outcome[None])
    assert_type(await receipts.get("A"), Receipt | None)
    once.forget("k")  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine]


# ── locks and operations ──


async def locking() -> None:
    assert_type(once.lock("sync"), AsyncLock)
    assert_type(await once.try_lock("sync"), AsyncHeldLock | None)
    async with once.lock("sync", lease="30s") as lock:
        assert_type(lock, AsyncHeldLock)
        assert_type(await lock.release(), None)


@once.operation("mail")
async def mail(order: str) -> Receipt:
    return Receipt(len(order))


@blocking.operation("mail", on_running="skip")
async def mail_or_skip(order: str) -> Receipt:
    return Receipt(len(order))


async def mailing() -> None:
    assert_type(await mail("A"), Receipt)
    assert_type(await mail_or_skip("A"), Receipt | None)


once.operation("mail")(not_async)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@once.schedule("30 2 * * *", tz="Europe/Berlin", catch_up="last")
async def nightly() -> Receipt:
    return Receipt(1)


async def ticking() -> None:
    assert_type(await nightly(), Receipt)
    assert_type(await nightly.tick(rerun=True), Outcome[Receipt])
    async with once.tick("report", "2026-03-01T08:05Z") as run:
        assert_type(run.attempt, int)


once.schedule("30 2 * * *")(not_async)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

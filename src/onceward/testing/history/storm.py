"""A storm: several workers at once on the same few keys, recorded."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from random import Random

from onceward.protocol.ports import Store
from onceward.protocol.runtime import Runtime
from onceward.testing.conformance.runtimes import RUNTIME_KINDS, RuntimeKind

from .load import MOMENT, Pause, Worker
from .log import MemoryLog
from .operation import Operation
from .recorder import Recorder


def storm(
    open_store: Callable[[], Store],
    *,
    seed: int,
    workers: int = 4,
    steps: int = 200,
    keys: int = 4,
    moment: int = MOMENT,
    mode: str = "blocking",
    shared: bool = False,
    lingers: bool = True,
    pause: Pause | None = None,
) -> list[Operation]:
    """The history of that many workers, each with a store of its own, on the same data.

    `shared`: one store for all of them, as in a client that many threads or tasks use. `colour` is "blocking" (threads)
    or "asyncio" (tasks). `moment` is the unit of leases and windows in µs: large enough that a call fits into it.
    `pause` waits that many µs, or turns a fake clock. For `lingers` see `Recorder`. The seed decides what each worker
    wants; what they get depends on the race, so a history comes but once.
    """
    log = MemoryLog()
    chosen = RUNTIME_KINDS[mode]

    async def work(number: int, store: Store, heartbeat: Store, runtime: Runtime) -> None:
        dice = Random(f"{seed} {number}")
        worker = Worker(
            store,
            heartbeat,
            dice,
            pause or partial(_sleep, runtime),
            keys=keys,
            moment=moment,
            cancels=runtime.supports_cancellation,
        )
        for _ in range(steps):
            await worker.step()
            await runtime.sleep(0)  # lets the others in, in either colour

    async def work_alone(number: int) -> None:
        recorder = Recorder(open_store(), log, by=f"worker {number}", lingers=lingers)
        async with opened(recorder, chosen) as place:
            await work(number, *place)

    async def all_at_once() -> None:
        numbers = range(1, workers + 1)
        if not shared:
            await chosen.run_concurrently([partial(work_alone, number) for number in numbers])
            return
        async with opened(Recorder(open_store(), log, lingers=lingers), chosen) as place:
            await chosen.run_concurrently([partial(work, number, *place) for number in numbers])

    chosen.run(all_at_once())
    return log.operations()


@asynccontextmanager
async def opened(store: Store, mode: RuntimeKind) -> AsyncIterator[tuple[Store, Store, Runtime]]:
    """The store and its twin for renewals, each in a world of its own, as a client has them."""
    heartbeat = store.clone()
    places = [(store, mode.new_runtime())]
    if heartbeat is not store:
        places.append((heartbeat, mode.new_runtime()))
    for one, runtime in places:
        await one.open(runtime)
    try:
        yield store, heartbeat, places[0][1]
    finally:
        for one, runtime in places:
            await one.close()
            mode.close_runtime(runtime)


async def _sleep(runtime: Runtime, microseconds: int) -> None:
    await runtime.sleep(microseconds / 1_000_000)

"""A storm: run several workers concurrently on the same few keys, and record the history."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from random import Random

from onceward.protocol.ports import Store
from onceward.protocol.runtime import Runtime
from onceward.testing.conformance.runtimes import RUNTIME_KINDS, RuntimeKind

from .load import TIME_UNIT, LoadWorker, Pause
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
    time_unit: int = TIME_UNIT,
    mode: str = "blocking",
    shared: bool = False,
    late_effects: bool = True,
    pause: Pause | None = None,
) -> list[Operation]:
    """Run concurrent workers with random requests on a store, and return the history.

    Args:
        open_store: Returns a store on the same data with each call. The data must be empty.
        seed: Determines the requests of each worker. The answers depend on the race, so the same seed does not
            reproduce a history.
        workers: How many workers run at the same time, each with its own store.
        steps: How many requests each worker sends.
        keys: How many keys the workers share. Fewer keys cause more conflicts.
        time_unit: The unit of leases and windows in µs. A call must fit into it.
        mode: `"blocking"` uses threads, `"asyncio"` tasks.
        shared: Whether all workers use one store, as in a client that many threads or tasks share.
        late_effects: Whether a request that failed may still take effect later; see `Recorder`.
        pause: Waits that many µs, or advances a fake clock. By default it sleeps.
    """
    log = MemoryLog()
    runtime_kind = RUNTIME_KINDS[mode]

    async def work(number: int, store: Store, heartbeat: Store, runtime: Runtime) -> None:
        rng = Random(f"{seed} {number}")
        worker = LoadWorker(
            store,
            heartbeat,
            rng,
            pause or partial(_sleep, runtime),
            keys=keys,
            time_unit=time_unit,
            cancels=runtime.supports_cancellation,
        )
        for _ in range(steps):
            await worker.step()
            await runtime.sleep(0)  # lets other threads or tasks run

    async def work_alone(number: int) -> None:
        recorder = Recorder(open_store(), log, by=f"worker {number}", late_effects=late_effects)
        async with open_pair(recorder, runtime_kind) as pair:
            await work(number, *pair)

    async def run_workers() -> None:
        numbers = range(1, workers + 1)
        if not shared:
            await runtime_kind.run_concurrently([partial(work_alone, number) for number in numbers])
            return
        async with open_pair(Recorder(open_store(), log, late_effects=late_effects), runtime_kind) as pair:
            await runtime_kind.run_concurrently([partial(work, number, *pair) for number in numbers])

    runtime_kind.run(run_workers())
    return log.operations()


@asynccontextmanager
async def open_pair(store: Store, mode: RuntimeKind) -> AsyncIterator[tuple[Store, Store, Runtime]]:
    """Open the store and its clone for renewals, each with its own runtime, as a client does."""
    heartbeat = store.clone()
    stores = [(store, mode.new_runtime())]
    if heartbeat is not store:
        stores.append((heartbeat, mode.new_runtime()))
    for one, runtime in stores:
        await one.open(runtime)
    try:
        yield store, heartbeat, stores[0][1]
    finally:
        for one, runtime in stores:
            await one.close()
            mode.close_runtime(runtime)


async def _sleep(runtime: Runtime, microseconds: int) -> None:
    await runtime.sleep(microseconds / 1_000_000)

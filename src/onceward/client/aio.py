"""AsyncOnce: the async face. One line a method; the flows are the same as those of `Once`."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import datetime
from typing import Any, Literal, Self, Unpack, overload

from onceward.engine import records
from onceward.engine.bulk import execute_all
from onceward.engine.engine import Engine
from onceward.engine.entry import Entry
from onceward.engine.execute import execute
from onceward.errors import ConfigurationError
from onceward.keys.weight import is_light
from onceward.latest.api import AsyncLatestState
from onceward.locks.api import AsyncHeldLock, AsyncLock, lock_job, tried_async
from onceward.observe.figures import broken_rules, stats
from onceward.observe.rules import Broken, thresholds_of
from onceward.operations.async_function import AsyncDecorator, AsyncFunction, SkippingAsyncDecorator
from onceward.operations.block import AsyncClaimBlock
from onceward.operations.decorator import Item, P, T, answer_of, refuse_task
from onceward.operations.job_builder import given_key, is_quick, is_quick_call, job_under, jobs_of
from onceward.operations.operation import KeySource, TenantSource
from onceward.operations.table import OperationsSource, declared
from onceward.operations.transaction import AsyncWithin
from onceward.protocol.audit import AuditEntry
from onceward.protocol.counters import Tally
from onceward.protocol.duration import Duration, microseconds
from onceward.protocol.latest import LatestStateOptions
from onceward.protocol.outcome import Outcome
from onceward.protocol.policy import SECOND, Choices, Defaults, Finding, OnDone, OnLost, OnRunning, Settings, applied
from onceward.protocol.ports import Store
from onceward.recovery.decision import Recovery
from onceward.recovery.deliveries import sweeper
from onceward.recovery.sweeper import Tell
from onceward.results.cipher import Cipher
from onceward.runtime.aio import AsyncioRuntime, AsyncWorkerPool
from onceward.runtime.bridge import run
from onceward.runtime.threads import ThreadRuntime
from onceward.sagas import records as saga_records
from onceward.sagas.api import AsyncSaga, SagaChoices
from onceward.sagas.definition import Step
from onceward.schedules.api import AsyncScheduled, AsyncScheduleDecorator, AsyncTickBlock, plan, read_pattern, watches
from onceward.schedules.definition import TickChoices
from onceward.schedules.runner import Watcher, keep
from onceward.stores.cached import CachedStore

from .alerts import AsyncAlert, alert_jobs, send_all
from .audit_identity import signed
from .base import BaseClient, by_text


class AsyncOnce(BaseClient):
    """Gives async work an effect once per key. Everything as in `Once`, awaited."""

    _awaits = True

    def __init__(
        self,
        store: Store | str | None = None,
        *,
        app: str = "default",
        tenant: str | None = None,
        cipher: Cipher | None = None,
        accept_plain: bool = False,
        cache: int = 0,
        counters: bool = False,
        operations: OperationsSource | None = None,
        **defaults: Unpack[Defaults],
    ) -> None:
        super().__init__(
            store,
            app=app,
            tenant=tenant,
            cipher=cipher,
            accept_plain=accept_plain,
            cache=cache,
            counters=counters,
            operations=operations,
            **defaults,
        )

    def _runtime(self) -> AsyncioRuntime:
        return AsyncioRuntime()

    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, T]], /) -> AsyncFunction[P, T]: ...
    @overload
    def __call__(
        self,
        *,
        key: KeySource = None,
        name: str | None = None,
        version: str | int | None = None,
        tenant: TenantSource = None,
        on_running: Literal["skip"],
        on_done: OnDone = "replay",
        **choices: Unpack[Choices],
    ) -> SkippingAsyncDecorator: ...
    @overload
    def __call__(
        self,
        *,
        key: KeySource = None,
        name: str | None = None,
        version: str | int | None = None,
        tenant: TenantSource = None,
        on_running: OnRunning = "wait",
        on_done: Literal["skip"],
        **choices: Unpack[Choices],
    ) -> SkippingAsyncDecorator: ...
    @overload
    def __call__(
        self,
        *,
        key: KeySource = None,
        name: str | None = None,
        version: str | int | None = None,
        tenant: TenantSource = None,
        on_running: Literal["wait", "raise"] = "wait",
        on_done: Literal["replay", "raise"] = "replay",
        **choices: Unpack[Choices],
    ) -> AsyncDecorator: ...
    def __call__(  # type: ignore[misc]  # mypy does not see that **settings takes what Choices unpacks to
        self,
        fn: Callable[..., Any] | None = None,
        /,
        *,
        key: KeySource = None,
        name: str | None = None,
        version: str | int | None = None,
        tenant: TenantSource = None,
        **settings: Any,
    ) -> Any:
        """Decorate a coroutine function: `@once`, or `@once(key="charge:{order_id}", window="24h", …)`."""

        def decorate(fn: Callable[..., Any]) -> Any:
            refuse_plain(fn)
            chosen = {"key": key, "name": name, "version": version, "tenant": tenant}
            return AsyncFunction(self, self.declare(fn, settings, awaits=True, **chosen))

        return decorate if fn is None else decorate(fn)

    @overload
    def operation(
        self,
        name: str,
        *,
        on_running: Literal["skip"],
        on_done: OnDone = "replay",
        **choices: Unpack[Choices],
    ) -> SkippingAsyncDecorator: ...
    @overload
    def operation(
        self,
        name: str,
        *,
        on_running: OnRunning = "wait",
        on_done: Literal["skip"],
        **choices: Unpack[Choices],
    ) -> SkippingAsyncDecorator: ...
    @overload
    def operation(
        self,
        name: str,
        *,
        on_running: Literal["wait", "raise"] = "wait",
        on_done: Literal["replay", "raise"] = "replay",
        **choices: Unpack[Choices],
    ) -> AsyncDecorator: ...
    def operation(self, name: str, **choices: Any) -> Any:
        """`@once.operation("email")`: decorate by the table of operations; `choices` are what it leaves open."""
        self.operations[name].adding(choices)  # refused here, where the name is written

        def decorate(fn: Callable[..., Any]) -> Any:
            refuse_plain(fn)
            return AsyncFunction(self, declared(self, fn, name, choices, awaits=True))

        return decorate

    async def run(self, key: Any, fn: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Await fn(*args) once under this key; the value, or the exception that says why there is none."""
        quick = is_quick_call(key, fn, args, kwargs)
        job = self.job(key, fn, args, kwargs) if quick else await job_under(self, key, fn, args, kwargs)
        value: T = answer_of(await execute(self.engine, job), job.policy)
        return value

    async def outcome(
        self, key: Any, fn: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Outcome[T]:
        """As `run`, but the `Outcome`."""
        return await execute(self.engine, await job_under(self, key, fn, args, kwargs))

    async def map(
        self,
        fn: Callable[[Item], Coroutine[Any, Any, T]],
        items: Iterable[Item],
        *,
        key: KeySource = None,
        name: str | None = None,
        **settings: Unpack[Settings],
    ) -> list[Outcome[T]]:
        """fn(item) once per key, claimed in bulk. Outcomes in input order; one that fails stops no other."""
        operation, make = self.job_maker(fn, key, name, settings)
        return await execute_all(self.engine, await jobs_of(self.engine.runtime, items, operation, make))

    def claim(
        self,
        key: Any,
        *,
        name: str | None = None,
        payload: Any = None,
        note: dict[str, str] | None = None,
        **settings: Unpack[Settings],
    ) -> AsyncClaimBlock:
        """`async with once.claim(key) as claim:` own the key while the block runs, or raise NotAcquired."""
        job = functools.partial(self.claim_job, key, name, payload, note or {}, settings)
        return AsyncClaimBlock(self.engine, job() if is_quick(key) and is_light(payload) else job)

    def lock(
        self, name: Any, *, lease: Duration | None = None, wait: Duration | None = None, on_lost: OnLost = "notify"
    ) -> AsyncLock:
        """`async with once.lock("sync", lease="30s") as lock:` one owner at a time; waits for it for up to `wait`."""
        job = functools.partial(lock_job, self, name, lease, wait, on_lost)
        return AsyncLock(self.engine, job() if is_quick(name) else job)

    async def try_lock(
        self, name: Any, *, lease: Duration | None = None, on_lost: OnLost = "notify"
    ) -> AsyncHeldLock | None:
        """The lock, or None if somebody has it: no waiting. It is a block that releases, or has to be released."""
        return await tried_async(self.lock(name, lease=lease, wait=0, on_lost=on_lost))

    def within(self, connection: Any) -> AsyncWithin:
        """`async with once.within(connection) as tx:` claim, effect and result in your own transaction."""
        return AsyncWithin(self, connection)

    @overload
    def state(self, name: str, type: type[T], **choices: Unpack[LatestStateOptions]) -> AsyncLatestState[T]: ...
    @overload
    def state(self, name: str, type: Any = Any, **choices: Unpack[LatestStateOptions]) -> AsyncLatestState[Any]: ...
    def state(self, name: str, type: Any = Any, **choices: Unpack[LatestStateOptions]) -> AsyncLatestState[Any]:
        """The newest value of each entity of this name, whatever the order in which events arrive.

        `type` is the type of the values. Messages are known for `window` ("7d"), deleted entities for `keep_deleted`
        ("30d"); an event whose time is more than `max_clock_skew` ("5m") ahead of the store's clock is `Parked`.
        """
        return AsyncLatestState(self, name, type, **choices)

    def schedule(
        self, pattern: str, *, tz: str = "UTC", name: str | None = None, **choices: Unpack[TickChoices]
    ) -> AsyncScheduleDecorator:
        """`@once.schedule("*/5 8-18 * * 1-6", tz="Europe/Berlin")`: run by `onceward schedule`, each slot once."""
        decorator: AsyncScheduleDecorator = plan(self, AsyncScheduled, read_pattern(pattern, tz), name, choices)
        return decorator

    def tick(
        self,
        name: str,
        scheduled_at: datetime | str | None = None,
        *,
        pattern: str | None = None,
        tz: str = "UTC",
        rerun: bool = False,
        **choices: Unpack[TickChoices],
    ) -> AsyncTickBlock:
        """`async with once.tick("report", scheduled_at):` one run of a schedule, for schedulers that fire you."""
        return AsyncTickBlock(self, name, scheduled_at, choices, pattern=pattern, tz=tz, rerun=rerun)

    async def run_schedules(self, *, on_result: Watcher | None = None) -> None:
        """Run what was declared with `schedule` when it is due, until `stop()`; then wait for what is running."""
        await keep(self.engine, watches(self, on_result), AsyncWorkerPool())

    def saga(
        self,
        name: str,
        *steps: Step,
        input_type: Callable[..., Any] | None = None,
        key: KeySource = None,
        version: str | int | None = None,
        tenant: TenantSource = None,
        **choices: Unpack[SagaChoices],
    ) -> AsyncSaga:
        """Steps that are all done in the end, or all undone: `once.saga("order", Step("charge", charge, undo=refund))`.

        It is called with its input, by name; `input_type` is a function or class whose parameters those are.
        """
        return AsyncSaga(self, name, steps, input_type, choices, key=key, version=version, tenant=tenant)

    async def recover(self, *, every: Duration | None = None, on_result: Tell | None = None) -> Recovery:
        """Finish what was declared with `store_input=True` and nobody delivers again; tells what it came to.

        Until nothing is due; with `every`, until `stop()`, with a rest of that length between the looks.
        """
        worker = sweeper(self, on_result)
        if every is None:
            return await worker.until_idle()
        return await worker.until_stopped(AsyncWorkerPool(), microseconds(every, "every") / SECOND)

    async def read(self, key: Any, *, name: str | None = None) -> Entry | None:
        """The record under the key, or None."""
        return await records.read(
            self.engine, await given_key(self, key, name), self.codec(), by_text=by_text(key, name)
        )

    async def forget(
        self,
        key: Any,
        *,
        name: str | None = None,
        force: bool = False,
        seen: Entry | None = None,
        why: str | None = None,
    ) -> bool:
        """Make the key free again; tells whether there was anything. A live owner is spared unless forced.

        `seen` is what `read` gave: what has become another record since is left alone. With `why`, it is audited.
        """
        return await saga_records.forget(
            self.engine,
            await given_key(self, key, name),
            force=force,
            by_text=by_text(key, name),
            seen=seen,
            signed=signed("forget", why, "forced" if force else ""),
        )

    async def resolve(
        self, key: Any, finding: applied | Finding, *, name: str | None = None, why: str | None = None
    ) -> None:
        """Say how a PARKED attempt ended: `applied(value)`, `not_applied` or `abandon`. With `why`, it is audited."""
        await saga_records.resolve(
            self.engine,
            await given_key(self, key, name),
            finding,
            self.codec(),
            self.policy,
            by_text=by_text(key, name),
            signed=signed("resolve", why),
        )

    async def purge(self, limit: int = 10_000, *, why: str | None = None) -> int:
        """Delete up to `limit` records that answer for nothing any more. With `why`, it is audited."""
        return await records.purge(self.engine, limit, signed("purge", why))

    async def audit(
        self, key: Any = None, *, name: str | None = None, within: Duration | None = None, limit: int = 100
    ) -> list[AuditEntry]:
        """What was changed by hand and why, the newest first: under this key, or under all."""
        return await records.audit(
            self.engine,
            None if key is None else await given_key(self, key, name),
            within=None if within is None else microseconds(within, "within"),
            limit=limit,
            by_text=by_text(key, name),
        )

    async def migrate(self) -> None:
        """Make or extend the store's tables, as `onceward migrate` does. Up to date: does nothing."""
        await records.migrate(self.engine)

    async def stats(self, since: Duration = "24h") -> Tally:
        """What all processes counted in the last hours, by scope: for clients that were made with `counters=True`."""
        return await stats(self.engine, microseconds(since, "since"))

    async def check(self, *, rules: Mapping[str, Any] | None = None, alert: AsyncAlert | None = None) -> list[Broken]:
        """The rules that are broken now; `rules` has other thresholds. `alert` is called for each, once in 24 h.

        Only what is counted (`counters=True`), and what is PENDING, is judged: an empty list says no more than that.
        """
        thresholds = thresholds_of(rules or {})
        found = await broken_rules(self.engine, thresholds)
        if alert is not None:
            await send_all(self, alert_jobs(self, found, alert, thresholds))
        return found

    async def close(self, timeout: float = 10.0) -> None:
        """Stop claiming, let running work finish (up to `timeout` seconds), join the keeper, close the store."""
        self.stop()
        await asyncio.to_thread(self.heartbeat.drain, timeout)
        self.engine.closed = True
        await asyncio.to_thread(self.heartbeat.close)
        if self.counters is not None:
            await asyncio.to_thread(self.counters.close)
        await self.engine.store.close()
        close_loop(self.engine)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def run_until_stopped(once: AsyncOnce, on_result: Watcher | None) -> None:
    """Run its schedules on an event loop of their own until it is stopped, then close it."""

    async def main() -> None:
        async with once:
            await once.run_schedules(on_result=on_result)

    asyncio.run(main())


def recover_until_stopped(once: AsyncOnce, every: Duration | None, on_result: Tell | None) -> Recovery:
    """Recover on an event loop of its own, until it is stopped or nothing is due; then close it."""

    async def main() -> Recovery:
        async with once:
            return await once.recover(every=every, on_result=on_result)

    return asyncio.run(main())


def refuse_plain(fn: Any) -> None:
    refuse_task(fn)
    if not inspect.iscoroutinefunction(fn):
        raise ConfigurationError(
            f"AsyncOnce decorates async functions, and {fn!r} is none", hint="make it async def, or use Once"
        )


def beside(engine: Engine) -> Engine:
    """The async engine of the same client: same data, keeper and events, a connection of its own."""
    store = engine.store.beside() if isinstance(engine.store, CachedStore) else engine.store.twin()
    return Engine(store, AsyncioRuntime(), engine.heartbeat, engine.bus, engine.owner)


def close_beside(engine: Engine) -> None:
    """Closed by the `Once` that it belongs to, without an event loop."""
    run(engine.store.open(ThreadRuntime()))
    run(engine.store.close())
    close_loop(engine)


def close_loop(engine: Engine) -> None:
    if isinstance(engine.runtime, AsyncioRuntime):
        engine.runtime.close()

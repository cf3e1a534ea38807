"""Once: the blocking face. One line a method; the flows are in `core`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack, overload

from onceward.engine import records
from onceward.engine.entry import Entry
from onceward.errors import ConfigurationError
from onceward.operations.block import ClaimBlock
from onceward.operations.decorator import Item, P, T, refuse_task
from onceward.operations.function import Decorator, Function, SkippingDecorator, answer, do
from onceward.operations.operation import KeySource, TenantSource
from onceward.protocol.audit import AuditEntry
from onceward.protocol.duration import Duration, microseconds
from onceward.protocol.outcome import Outcome
from onceward.protocol.policy import SECOND, Choices, Defaults, Finding, OnDone, OnLost, OnRunning, Settings, applied
from onceward.protocol.ports import Store
from onceward.results.cipher import Cipher
from onceward.runtime.bridge import run
from onceward.runtime.threads import ThreadRuntime

from .audit_identity import signed
from .base import BaseClient, by_text

if TYPE_CHECKING:
    from datetime import datetime

    from onceward.latest.api import LatestState
    from onceward.locks.api import HeldLock, Lock
    from onceward.observe.rules import Broken
    from onceward.operations.async_function import AsyncFunction
    from onceward.operations.table import OperationsSource
    from onceward.operations.transaction import Within
    from onceward.protocol.counters import Tally
    from onceward.protocol.latest import LatestStateOptions
    from onceward.recovery.decision import Recovery
    from onceward.recovery.sweeper import Tell
    from onceward.sagas.api import Saga, SagaChoices
    from onceward.sagas.definition import Step
    from onceward.schedules.api import ScheduleDecorator, TickBlock
    from onceward.schedules.definition import TickChoices
    from onceward.schedules.runner import Watcher

    from .aio import AsyncOnce
    from .alerts import Alert


class Once(BaseClient):
    """Gives blocking work an effect once per key.

    `store` is a URL or a store (default: $ONCEWARD_STORE_URL, else sqlite:///onceward.db); `app` and `tenant` are part
    of every key; `cache` keeps that many completed results in this process; `counters` counts outcomes, by scope and
    hour, in the store; the rest are default choices.
    """

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

    def _runtime(self) -> ThreadRuntime:
        return ThreadRuntime()

    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, T]], /) -> AsyncFunction[P, T]: ...  # type: ignore[overload-overlap]  # the first match is the one meant
    @overload
    def __call__(self, fn: Callable[P, T], /) -> Function[P, T]: ...
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
    ) -> SkippingDecorator: ...
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
    ) -> SkippingDecorator: ...
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
    ) -> Decorator: ...
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
        """Decorate a function: `@once`, or `@once(key="charge:{order_id}", …)`. Async ones get the async face."""

        def decorate(fn: Callable[..., Any]) -> Any:
            refuse_task(fn)
            if inspect.iscoroutinefunction(fn):
                return self.aio(key=key, name=name, version=version, tenant=tenant, **settings)(fn)
            refuse_undecoratable(fn)
            return Function(self, self.declare(fn, settings, key=key, name=name, version=version, tenant=tenant))

        return decorate if fn is None else decorate(fn)

    @overload
    def operation(
        self,
        name: str,
        *,
        on_running: Literal["skip"],
        on_done: OnDone = "replay",
        **choices: Unpack[Choices],
    ) -> SkippingDecorator: ...
    @overload
    def operation(
        self,
        name: str,
        *,
        on_running: OnRunning = "wait",
        on_done: Literal["skip"],
        **choices: Unpack[Choices],
    ) -> SkippingDecorator: ...
    @overload
    def operation(
        self,
        name: str,
        *,
        on_running: Literal["wait", "raise"] = "wait",
        on_done: Literal["replay", "raise"] = "replay",
        **choices: Unpack[Choices],
    ) -> Decorator: ...
    def operation(self, name: str, **choices: Any) -> Any:
        """`@once.operation("email")`: decorate by the table of operations; `choices` are what it leaves open."""
        from onceward.operations.table import declared  # not at the top, for the same reason as in `map`

        self.operations[name].adding(choices)  # refused here, where the name is written

        def decorate(fn: Callable[..., Any]) -> Any:
            refuse_task(fn)
            if inspect.iscoroutinefunction(fn):
                return self.aio.operation(name, **choices)(fn)
            refuse_undecoratable(fn)
            return Function(self, declared(self, fn, name, choices))

        return decorate

    @property
    def aio(self) -> AsyncOnce:
        """The async face on the same data, with a connection of its own."""
        from .aio import AsyncOnce, beside

        if not self._beside:
            self._beside.append(beside(self.engine))
        client = object.__new__(AsyncOnce)
        client.__dict__.update(self.__dict__, engine=self._beside[0], _operations=self._awaited_operations)
        return client

    def stop(self) -> None:
        """Claim nothing more from now on; what is running goes on. May be called from a signal handler."""
        for engine in (self.engine, *self._beside):
            engine.stopping = True

    def run(self, key: Any, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """fn(*args) once under this key; the value, or the exception that says why there is none."""
        value: T = answer(self.engine, self.job(key, fn, args, kwargs))
        return value

    def outcome(self, key: Any, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Outcome[T]:
        """As `run`, but the `Outcome`."""
        return do(self.engine, self.job(key, fn, args, kwargs))

    def map(
        self,
        fn: Callable[[Item], T],
        items: Iterable[Item],
        *,
        key: KeySource = None,
        name: str | None = None,
        **settings: Unpack[Settings],
    ) -> list[Outcome[T]]:
        """fn(item) once per key, claimed in bulk. Outcomes in input order; one that fails stops no other."""
        from onceward.engine.bulk import (
            execute_all,  # not at the top: what few programs call does not slow the import of all
        )

        _, make = self.job_maker(fn, key, name, settings)
        return run(execute_all(self.engine, [make((item,), {}) for item in items]))

    def claim(
        self,
        key: Any,
        *,
        name: str | None = None,
        payload: Any = None,
        note: dict[str, str] | None = None,
        **settings: Unpack[Settings],
    ) -> ClaimBlock:
        """`with once.claim(key) as claim:` own the key while the block runs. Raises NotAcquired if it is not ours."""
        return ClaimBlock(self.engine, self.claim_job(key, name, payload, note or {}, settings))

    def lock(
        self, name: Any, *, lease: Duration | None = None, wait: Duration | None = None, on_lost: OnLost = "notify"
    ) -> Lock:
        """`with once.lock("sync", lease="30s") as lock:` one owner at a time; waits for it for up to `wait`."""
        from onceward.locks.api import Lock, lock_job  # not at the top, for the same reason as in `map`

        return Lock(self.engine, lock_job(self, name, lease, wait, on_lost))

    def try_lock(self, name: Any, *, lease: Duration | None = None, on_lost: OnLost = "notify") -> HeldLock | None:
        """The lock, or None if somebody has it: no waiting. It is a block that releases, or has to be released."""
        from onceward.locks.api import tried

        return tried(self.lock(name, lease=lease, wait=0, on_lost=on_lost))

    def within(self, connection: Any) -> Within:
        """`with once.within(connection) as tx:` claim, effect and result in your own transaction."""
        from onceward.operations.transaction import Within  # not at the top, for the same reason as in `map`

        return Within(self, connection)

    @overload
    def state(self, name: str, type: type[T], **choices: Unpack[LatestStateOptions]) -> LatestState[T]: ...
    @overload
    def state(self, name: str, type: Any = Any, **choices: Unpack[LatestStateOptions]) -> LatestState[Any]: ...
    def state(self, name: str, type: Any = Any, **choices: Unpack[LatestStateOptions]) -> LatestState[Any]:
        """The newest value of each entity of this name, whatever the order in which events arrive.

        `type` is the type of the values. Messages are known for `window` ("7d"), deleted entities for `keep_deleted`
        ("30d"); an event whose time is more than `max_clock_skew` ("5m") ahead of the store's clock is `Parked`.
        """
        from onceward.latest.api import LatestState  # not at the top, for the same reason as in `map`

        return LatestState(self, name, type, **choices)

    def schedule(
        self, pattern: str, *, tz: str = "UTC", name: str | None = None, **choices: Unpack[TickChoices]
    ) -> ScheduleDecorator:
        """`@once.schedule("*/5 8-18 * * 1-6", tz="Europe/Berlin")`: run by `onceward schedule`, each slot once."""
        from onceward.schedules.api import (  # not at the top, for the same reason as in `map`
            Scheduled,
            plan,
            read_pattern,
        )

        decorator: ScheduleDecorator = plan(self, Scheduled, read_pattern(pattern, tz), name, choices)
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
    ) -> TickBlock:
        """`with once.tick("report", scheduled_at):` one run of a schedule, for schedulers that fire you."""
        from onceward.schedules.api import TickBlock

        return TickBlock(self, name, scheduled_at, choices, pattern=pattern, tz=tz, rerun=rerun)

    def run_schedules(self, *, on_result: Watcher | None = None) -> None:
        """Run what was declared with `schedule` when it is due, until `stop()`; then wait for what is running."""
        from onceward.runtime.threads import ThreadWorkerPool
        from onceward.schedules.api import watches
        from onceward.schedules.runner import keep

        run(keep(self.engine, watches(self, on_result), ThreadWorkerPool()))

    def saga(
        self,
        name: str,
        *steps: Step,
        input_type: Callable[..., Any] | None = None,
        key: KeySource = None,
        version: str | int | None = None,
        tenant: TenantSource = None,
        **choices: Unpack[SagaChoices],
    ) -> Saga:
        """Steps that are all done in the end, or all undone: `once.saga("order", Step("charge", charge, undo=refund))`.

        It is called with its input, by name; `input_type` is a function or class whose parameters those are.
        """
        from onceward.sagas.api import Saga  # not at the top, for the same reason as in `map`

        return Saga(self, name, steps, input_type, choices, key=key, version=version, tenant=tenant)

    def recover(self, *, every: Duration | None = None, on_result: Tell | None = None) -> Recovery:
        """Finish what was declared with `store_input=True` and nobody delivers again; tells what it came to.

        Until nothing is due; with `every`, until `stop()`, with a rest of that length between the looks.
        """
        from onceward.recovery.deliveries import sweeper  # not at the top, for the same reason as in `map`
        from onceward.runtime.threads import ThreadWorkerPool

        worker = sweeper(self, on_result)
        if every is None:
            return run(worker.until_idle())
        return run(worker.until_stopped(ThreadWorkerPool(), microseconds(every, "every") / SECOND))

    def read(self, key: Any, *, name: str | None = None) -> Entry | None:
        """The record under the key, or None."""
        return run(records.read(self.engine, self.key(key, name=name), self.codec(), by_text=by_text(key, name)))

    def forget(
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
        from onceward.sagas import records as saga_records  # not at the top, for the same reason as in `map`

        return run(
            saga_records.forget(
                self.engine,
                self.key(key, name=name),
                force=force,
                by_text=by_text(key, name),
                seen=seen,
                signed=signed("forget", why, "forced" if force else ""),
            )
        )

    def resolve(self, key: Any, finding: applied | Finding, *, name: str | None = None, why: str | None = None) -> None:
        """Say how a PARKED attempt ended: `applied(value)`, `not_applied` or `abandon`. With `why`, it is audited."""
        from onceward.sagas import records as saga_records

        run(
            saga_records.resolve(
                self.engine,
                self.key(key, name=name),
                finding,
                self.codec(),
                self.policy,
                by_text=by_text(key, name),
                signed=signed("resolve", why),
            )
        )

    def purge(self, limit: int = 10_000, *, why: str | None = None) -> int:
        """Delete up to `limit` records that answer for nothing any more. With `why`, it is audited."""
        return run(records.purge(self.engine, limit, signed("purge", why)))

    def audit(
        self, key: Any = None, *, name: str | None = None, within: Duration | None = None, limit: int = 100
    ) -> list[AuditEntry]:
        """What was changed by hand and why, the newest first: under this key, or under all."""
        return run(
            records.audit(
                self.engine,
                None if key is None else self.key(key, name=name),
                within=None if within is None else microseconds(within, "within"),
                limit=limit,
                by_text=by_text(key, name),
            )
        )

    def migrate(self) -> None:
        """Make or extend the store's tables, as `onceward migrate` does. Up to date: does nothing."""
        run(records.migrate(self.engine))

    def stats(self, since: Duration = "24h") -> Tally:
        """What all processes counted in the last hours, by scope: for clients that were made with `counters=True`."""
        from onceward.observe.figures import stats  # not at the top, for the same reason as in `map`

        return run(stats(self.engine, microseconds(since, "since")))

    def check(self, *, rules: Mapping[str, Any] | None = None, alert: Alert | None = None) -> list[Broken]:
        """The rules that are broken now; `rules` has other thresholds. `alert` is called for each, once in 24 h.

        Only what is counted (`counters=True`), and what is PENDING, is judged: an empty list says no more than that.
        """
        from onceward.observe.figures import broken_rules
        from onceward.observe.rules import thresholds_of

        from .alerts import alert_jobs, send_all

        thresholds = thresholds_of(rules or {})
        found = run(broken_rules(self.engine, thresholds))
        if alert is not None:
            run(send_all(self, alert_jobs(self, found, alert, thresholds)))
        return found

    def close(self, timeout: float = 10.0) -> None:
        """Stop claiming, let running work finish (up to `timeout` seconds), join the keeper, close the store."""
        from onceward.locks.flow import held_here  # for those who have any

        self.stop()
        self.heartbeat.drain(timeout, own=held_here())
        for engine in (self.engine, *self._beside):
            engine.closed = True
        self.heartbeat.close()
        if self.counters is not None:
            self.counters.close()
        if self._beside:
            from .aio import close_beside

            close_beside(self._beside[0])
        run(self.engine.store.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def refuse_undecoratable(fn: Any) -> None:
    """Staticmethod and classmethod go outside: they hide the function's own signature."""
    if isinstance(fn, staticmethod | classmethod):
        raise ConfigurationError(f"put @{type(fn).__name__} above @once, not below it")
    if not callable(fn):
        raise ConfigurationError(
            f"@once decorates functions, not {type(fn).__name__}",
            hint='a key is given by name: @once(key="charge:{order}")',
        )

"""The public API of sagas: `Saga` (sync) and `AsyncSaga`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import GenericAlias
from typing import Any, Literal, TypedDict

from msgspec.structs import replace

from onceward.engine.engine import Engine
from onceward.engine.runner import value_or_raise
from onceward.errors import ConfigurationError
from onceward.keys.key import Key, Scope
from onceward.operations.operation import Operation, codec_for, result_annotation
from onceward.protocol.duration import Duration
from onceward.protocol.outcome import Outcome
from onceward.protocol.policy import Finding, FingerprintSource, OnLost, OnStoreDown, Policy, applied
from onceward.protocol.record import AfterCrash
from onceward.protocol.window import Window
from onceward.results.codec import Codec
from onceward.results.result_type import ResultType
from onceward.runtime.threads import run

from . import admin, records
from .definition import Plan, Step, plan_of
from .flow import SagaJob, run_saga
from .records import SagaEntry
from .step_context import StepContext

MAX_JOURNAL_BYTES = 192 * 1024
"""The results of all steps together. In base64, and with the largest input, that is 350 KB on one record. DynamoDB has
the smallest limit of all stores: 400 KB per item."""

STEP_OPTIONS = frozenset({"after_crash", "final", "not_applied", "max_attempts", "retry_delay", "retry"})


class SagaChoices(TypedDict, total=False):
    """The options of a saga as a whole. Options of a step are passed to `Step`."""

    lease: Duration
    """How long a worker may be silent before another one continues the saga."""
    window: Window | Duration
    """How long a completed saga is replayed."""
    wait: Duration
    """How long a call waits for another worker that runs the same saga."""
    on_running: Literal["wait", "raise"]
    """What a call does while another worker runs the same saga: wait, or raise `AlreadyRunning`."""
    on_done: Literal["replay", "raise"]
    """What a call does if the saga was done before: return its results, or raise `AlreadyDone`."""
    retry_span: Duration | None
    """How long the sender redelivers. None if that is not known. A shorter `window` causes a warning."""
    on_lost: OnLost
    """What happens when another worker took over: the next write is refused, or async steps are cancelled too."""
    settle_timeout: Duration | None
    """How long to keep sending the results to a store that does not respond. None for the default."""
    on_store_down: OnStoreDown
    """Whether to raise or to run unprotected if the store cannot be reached."""
    fingerprint: FingerprintSource
    """Which parts of the input must be equal under one key."""
    store_result: bool
    """Whether the results of the steps are returned to later deliveries."""
    max_result_bytes: int
    """The maximum size of the encoded results."""
    compress_from: int | None
    """The size in bytes from which results are compressed. None for never."""
    reasons: Mapping[str, str]
    """Your own words for the outcomes of this saga."""
    store_input: bool
    """Whether the input is stored, so that a recovery worker can finish the saga. True by default."""
    max_input_bytes: int
    """The maximum size of the stored input. Larger input raises before anything is claimed."""


class DeclaredSaga:
    """What the sync and the async saga share: the plan, and how a call becomes a job."""

    is_async = False

    def __init__(
        self,
        client: Any,
        name: str,
        steps: tuple[Step, ...],
        input_type: Callable[..., Any] | None,
        choices: Mapping[str, Any],
        **parts: Any,
    ) -> None:
        if not isinstance(name, str) or not name:
            raise ConfigurationError("a saga needs a name", hint='once.saga("order", Step(…), …)')
        self.name = name
        self.plan: Plan = plan_of(name, steps)
        if not self.is_async:
            refuse_async(name, self.plan)
        closed = {"on_store_down": "raise", "on_missing_key": "raise"}  # regardless of the client's defaults
        settings = {"store_input": True, **closed, **checked_choices(name, choices)}
        self.operation: Operation = client.compile_operation(
            input_type or keyword_input, settings, name=name, is_async=self.is_async, **parts
        )
        self._input_type = input_type
        self.engine: Engine = client.engine
        self.policy: Policy = replace(self.operation.policy, after_crash=AfterCrash.VERIFY, max_attempts=0)
        self._codecs = codecs_of(client, self.plan, self.policy)
        all_results = GenericAlias(tuple, tuple(result_annotation(step.do) for step in self.plan))
        results = ResultType(all_results, classes_only=True)  # the codec rebuilds only classes that a step returns
        self._codec = codec_for(self.policy, results, client._cipher, accept_plain=client._accept_plain)  # noqa: SLF001 (the client's own classes call this)
        register(client, self)

    @property
    def scope(self) -> Scope:
        """The scope of the saga's keys."""
        return self.operation.scope

    def key(self, *args: Any, **kwargs: Any) -> Key:
        """Return the key for this input, without running anything."""
        self._refuse_positional(args)
        return self.operation.key(args, kwargs)

    def _refuse_positional(self, args: tuple[Any, ...]) -> None:
        if args and self._input_type is None:
            raise TypeError(
                f"the saga {self.name} takes its input by name, as in {self.name}(order_id=7);"
                " declare input_type=, a class or a function, to pass it by position as well"
            )

    def saga_job(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> SagaJob:
        """Return the job of one delivery."""
        self._refuse_positional(args)
        job = replace(self.operation.job(args, kwargs), policy=self.policy, codec=self._codec, is_async=self.is_async)
        saga_input = kwargs if self._input_type is None else self._input_type(*args, **kwargs)
        return SagaJob(job, self.plan, self._codecs, saga_input)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}: {', '.join(f'{one.name} ({one.kind})' for one in self.plan)}>"


class Saga(DeclaredSaga):
    """A saga of sync functions. Declare it with `once.saga(name, Step(…), …)`.

    In all methods, `args` and `kwargs` are the input of the saga. They identify it, as the arguments of a decorated
    function do. Input by position needs `input_type`, and raises `TypeError` without it.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Run the saga. Return the results of its steps by name. If the saga does not complete, raise.

        Raises:
            NotAcquired: It is running elsewhere, is parked, or has failed before.
            Exception: The exception of the step that failed. The earlier steps have been undone.
        """
        value: dict[str, Any] = value_or_raise(self.outcome(*args, **kwargs), self.policy)
        return value

    def outcome(self, *args: Any, **kwargs: Any) -> Outcome[dict[str, Any]]:
        """Run the saga. Return the `Outcome`: `Executed`, `Failed` with everything undone, `Parked`, and so on."""
        return run(run_saga(self.engine, self.saga_job(args, kwargs)))

    def read(self, *args: Any, **kwargs: Any) -> SagaEntry | None:
        """Return the record of the saga with this input, or None, without running anything. `.saga` is its journal."""
        return run(records.read(self.engine, self.key(*args, **kwargs), self._codec))

    def resolve(self, finding: applied | Finding, /, *args: Any, **kwargs: Any) -> None:
        """Resolve the step for which this saga is PARKED. The saga continues with its next delivery or by recovery.

        Args:
            finding: `applied(value)` if the step took effect, `not_applied` if it did not, `abandon` to undo the saga.
            args: The input, if it is passed by position.
            kwargs: The input.

        Raises:
            NotAcquired: The saga is not parked, or has changed in the meantime.
            ResultNotStored: The value of `applied(value)` cannot be stored.
        """
        key = self.key(*args, **kwargs)
        run(records.resolve(self.engine, key, finding, self._codec, self.policy))

    def compensate(self, *args: Any, **kwargs: Any) -> None:
        """Undo the saga. Call this if you know that the open step was not done, and no longer want it.

        The earlier steps are undone with the next delivery, or by a recovery worker. After `resolve(not_applied)`, this
        is possible until the next attempt. Raise `NotAcquired` if there is nothing to undo.
        """
        run(admin.compensate(self.engine, self.key(*args, **kwargs), self.policy))

    def retry(self, *args: Any, **kwargs: Any) -> None:
        """Let a PARKED saga continue with all of its attempts, or restart a saga that was undone.

        Raise `NotAcquired` if the saga is neither parked nor undone.
        """
        run(admin.retry(self.engine, self.key(*args, **kwargs)))


class AsyncSaga(DeclaredSaga):
    """A saga of coroutine functions, and of sync functions that do not block. Declare it with `AsyncOnce.saga`.

    In all methods, `args` and `kwargs` are the input of the saga. They identify it, as the arguments of a decorated
    function do. Input by position needs `input_type`, and raises `TypeError` without it.
    """

    is_async = True

    async def __call__(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Run the saga. Return the results of its steps by name. If the saga does not complete, raise.

        Raises:
            NotAcquired: It is running elsewhere, is parked, or has failed before.
            Exception: The exception of the step that failed. The earlier steps have been undone.
        """
        value: dict[str, Any] = value_or_raise(await self.outcome(*args, **kwargs), self.policy)
        return value

    async def outcome(self, *args: Any, **kwargs: Any) -> Outcome[dict[str, Any]]:
        """Run the saga. Return the `Outcome`: `Executed`, `Failed` with everything undone, `Parked`, and so on."""
        quick = self.operation.is_quick(args, kwargs)
        saga = self.saga_job(args, kwargs) if quick else await self.engine.runtime.compute(self.saga_job, args, kwargs)
        return await run_saga(self.engine, saga)

    async def read(self, *args: Any, **kwargs: Any) -> SagaEntry | None:
        """Return the record of the saga with this input, or None, without running anything. `.saga` is its journal."""
        return await records.read(self.engine, self.key(*args, **kwargs), self._codec)

    async def resolve(self, finding: applied | Finding, /, *args: Any, **kwargs: Any) -> None:
        """Resolve the step for which this saga is PARKED. The saga continues with its next delivery or by recovery.

        Args:
            finding: `applied(value)` if the step took effect, `not_applied` if it did not, `abandon` to undo the saga.
            args: The input, if it is passed by position.
            kwargs: The input.

        Raises:
            NotAcquired: The saga is not parked, or has changed in the meantime.
            ResultNotStored: The value of `applied(value)` cannot be stored.
        """
        key = self.key(*args, **kwargs)
        await records.resolve(self.engine, key, finding, self._codec, self.policy)

    async def compensate(self, *args: Any, **kwargs: Any) -> None:
        """Undo the saga. Call this if you know that the open step was not done, and no longer want it.

        The earlier steps are undone with the next delivery, or by a recovery worker. After `resolve(not_applied)`, this
        is possible until the next attempt. Raise `NotAcquired` if there is nothing to undo.
        """
        await admin.compensate(self.engine, self.key(*args, **kwargs), self.policy)

    async def retry(self, *args: Any, **kwargs: Any) -> None:
        """Let a PARKED saga continue with all of its attempts, or restart a saga that was undone.

        Raise `NotAcquired` if the saga is neither parked nor undone.
        """
        await admin.retry(self.engine, self.key(*args, **kwargs))


def keyword_input(**input: Any) -> dict[str, Any]:  # noqa: A002 (users write step.input)
    """The signature of a saga without `input_type=`: it accepts any keyword arguments."""
    return input


def checked_choices(name: str, choices: Mapping[str, Any]) -> dict[str, Any]:
    for choice, value in choices.items():
        if choice in ("on_running", "on_done") and value == "skip":
            raise ConfigurationError(f"{name}: a saga returns results or raises, so {choice} cannot be 'skip'")
        if choice in STEP_OPTIONS:
            raise ConfigurationError(f"{name}: {choice} is declared at a step", hint=f"Step(…, {choice}=…)")
        if choice == "on_missing_key":
            raise ConfigurationError(f"{name}: a saga has no {choice}: without a key no worker could continue it")
    return dict(choices)


def refuse_async(name: str, plan: Plan) -> None:
    for step in plan:
        for call in (step.do, step.undo, step.policy.find):
            if inspect.iscoroutinefunction(call):
                raise ConfigurationError(
                    f"{name}: step {step.name} is async, and a sync saga cannot await it",
                    hint="use AsyncOnce, or once.aio.saga(…)",
                )


def codecs_of(client: Any, plan: Plan, policy: Policy) -> dict[str, Codec]:
    """Return the codec for each step's result. Each step may use an equal part of the journal."""
    step_policy = replace(
        policy, store_result=True, max_result_bytes=min(policy.max_result_bytes, MAX_JOURNAL_BYTES // len(plan))
    )
    return {
        step.name: codec_for(
            step_policy,
            ResultType(result_annotation(step.do)),
            client._cipher,  # noqa: SLF001 (the client's own classes call this)
            accept_plain=client._accept_plain,  # noqa: SLF001 (as above)
        )
        for step in plan
    }


def register(client: Any, saga: DeclaredSaga) -> None:
    if client.sagas.get(saga.scope.text) is not None:
        raise ConfigurationError(f"two sagas are named {saga.name!r}: they would share their journals")
    client.sagas[saga.scope.text] = saga
    if saga.operation.policy.store_input:
        saga.operation.keep_input()
        client.recoverable.append(saga)


__all__ = ["AsyncSaga", "DeclaredSaga", "Saga", "SagaChoices", "Step", "StepContext"]

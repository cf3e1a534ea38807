"""Sagas as users hold them, in both colours."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal, TypedDict

from msgspec.structs import replace

from onceward.engine.engine import Engine
from onceward.errors import ConfigurationError
from onceward.keys.key import Key, Scope
from onceward.operations.decorator import answer_of
from onceward.operations.operation import Operation, codec_for, result_annotation
from onceward.protocol.duration import Duration
from onceward.protocol.outcome import Outcome
from onceward.protocol.policy import Finding, OnLost, OnStoreDown, Policy, applied
from onceward.protocol.record import AfterCrash
from onceward.protocol.window import Window
from onceward.results.codec import Codec
from onceward.results.result_type import ResultType
from onceward.runtime.bridge import run

from . import admin, records
from .definition import Plan, Step, plan_of
from .flow import SagaJob, run_saga
from .records import SagaEntry
from .step_context import StepContext

LARGEST_JOURNAL = 192 * 1024
"""Bytes for the results of all steps together. In base64, and with the largest input, that is 350 KB on one record: an
item of DynamoDB, the smallest of all, ends at 400."""

OF_STEPS = frozenset({"after_crash", "final", "not_applied", "max_attempts", "retry_delay", "retry"})


class SagaChoices(TypedDict, total=False):
    """What may be declared of a saga as a whole. What concerns a step is said at the step."""

    lease: Duration
    window: Window | Duration
    wait: Duration
    on_running: Literal["wait", "raise"]
    on_done: Literal["replay", "raise"]
    retry_span: Duration | None
    on_lost: OnLost
    settle_timeout: Duration | None
    on_store_down: OnStoreDown
    fingerprint: Literal["all", "none"] | Collection[str]
    store_result: bool
    max_result_bytes: int
    compress_from: int | None
    reasons: Mapping[str, str]
    store_input: bool
    max_input_bytes: int


class DeclaredSaga:
    """What both colours share: the plan, and how a call becomes a job."""

    awaits = False

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
        if not self.awaits:
            refuse_async(name, self.plan)
        closed = {"on_store_down": "raise", "on_missing_key": "raise"}  # whatever the client's defaults are
        settings = {"store_input": True, **closed, **checked(name, choices)}
        self.operation: Operation = client.compiled(
            input_type or keywords, settings, name=name, awaits=self.awaits, **parts
        )
        self._takes = input_type
        self.engine: Engine = client.engine
        self.policy: Policy = replace(self.operation.policy, after_crash=AfterCrash.VERIFY, max_attempts=0)
        self._results = ResultType(annotation_of(self.plan))
        self._codecs = codecs_of(client, self.plan, self.policy)
        self._codec = codec_for(self.policy, self._results, client._cipher, accept_plain=client._accept_plain)  # noqa: SLF001 (its own faces call this)
        register(client, self)

    @property
    def scope(self) -> Scope:
        """Whose keys its records have."""
        return self.operation.scope

    def key(self, *args: Any, **kwargs: Any) -> Key:
        """The key that this input has. Nothing is run."""
        self._refuse_positional(args)
        return self.operation.key(args, kwargs)

    def _refuse_positional(self, args: tuple[Any, ...]) -> None:
        if args and self._takes is None:
            raise TypeError(
                f"the saga {self.name} takes its input by name, as in {self.name}(order_id=7);"
                " declared with input_type=, a class or a function, it also takes it by position"
            )

    def saga_job(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> SagaJob:
        """One delivery of it."""
        self._refuse_positional(args)
        job = replace(self.operation.job(args, kwargs), policy=self.policy, codec=self._codec, awaits=self.awaits)
        given = kwargs if self._takes is None else self._takes(*args, **kwargs)
        return SagaJob(job, self.plan, self._codecs, given)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}: {', '.join(f'{one.name} ({one.kind})' for one in self.plan)}>"


class Saga(DeclaredSaga):
    """A saga of plain functions."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Carry it to its end; the results of its steps by their names, or the exception that says why not."""
        value: dict[str, Any] = answer_of(self.outcome(*args, **kwargs), self.policy)
        return value

    def outcome(self, *args: Any, **kwargs: Any) -> Outcome[dict[str, Any]]:
        """As the plain call, but the `Outcome`: Executed, Failed with everything undone, or Parked."""
        return run(run_saga(self.engine, self.saga_job(args, kwargs)))

    def read(self, *args: Any, **kwargs: Any) -> SagaEntry | None:
        """The record of the saga with this input, or None: its journal is `.saga`. Nothing is run."""
        return run(records.read(self.engine, self.key(*args, **kwargs), self._codec))

    def resolve(self, finding: applied | Finding, /, *args: Any, **kwargs: Any) -> None:
        """Say how the step ended for which this saga is PARKED: `applied(value)`, `not_applied` or `abandon`.

        It goes on with its next delivery, or by a recovery worker. `abandon`: it is undone.
        """
        key = self.key(*args, **kwargs)
        run(records.resolve(self.engine, key, finding, self._codec, self.policy))

    def give_up(self, *args: Any, **kwargs: Any) -> None:
        """The step that stands in the way was certainly not done, and is not to be: what came before it is undone.

        It is undone with the next delivery, or by a recovery worker. Also after `resolve(not_applied)`.
        """
        run(admin.give_up(self.engine, self.key(*args, **kwargs), self.policy))

    def retry(self, *args: Any, **kwargs: Any) -> None:
        """Let it go on, with all attempts, after it was PARKED; or begin anew, after it was undone."""
        run(admin.retry(self.engine, self.key(*args, **kwargs)))


class AsyncSaga(DeclaredSaga):
    """A saga of coroutine functions, and of plain ones that do not block."""

    awaits = True

    async def __call__(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Carry it to its end; the results of its steps by their names, or the exception that says why not."""
        value: dict[str, Any] = answer_of(await self.outcome(*args, **kwargs), self.policy)
        return value

    async def outcome(self, *args: Any, **kwargs: Any) -> Outcome[dict[str, Any]]:
        """As the plain call, but the `Outcome`: Executed, Failed with everything undone, or Parked."""
        quick = self.operation.is_quick(args, kwargs)
        made = self.saga_job(args, kwargs) if quick else await self.engine.runtime.think(self.saga_job, args, kwargs)
        return await run_saga(self.engine, made)

    async def read(self, *args: Any, **kwargs: Any) -> SagaEntry | None:
        """The record of the saga with this input, or None: its journal is `.saga`. Nothing is run."""
        return await records.read(self.engine, self.key(*args, **kwargs), self._codec)

    async def resolve(self, finding: applied | Finding, /, *args: Any, **kwargs: Any) -> None:
        """Say how the step ended for which this saga is PARKED: `applied(value)`, `not_applied` or `abandon`.

        It goes on with its next delivery, or by a recovery worker. `abandon`: it is undone.
        """
        key = self.key(*args, **kwargs)
        await records.resolve(self.engine, key, finding, self._codec, self.policy)

    async def give_up(self, *args: Any, **kwargs: Any) -> None:
        """The step that stands in the way was certainly not done, and is not to be: what came before it is undone.

        It is undone with the next delivery, or by a recovery worker. Also after `resolve(not_applied)`.
        """
        await admin.give_up(self.engine, self.key(*args, **kwargs), self.policy)

    async def retry(self, *args: Any, **kwargs: Any) -> None:
        """Let it go on, with all attempts, after it was PARKED; or begin anew, after it was undone."""
        await admin.retry(self.engine, self.key(*args, **kwargs))


def keywords(**input: Any) -> dict[str, Any]:  # noqa: A002 (the word of the saga)
    """The signature of a saga that takes whatever it is given by name."""
    return input


def checked(name: str, choices: Mapping[str, Any]) -> dict[str, Any]:
    for choice, value in choices.items():
        if choice in ("on_running", "on_done") and value == "skip":
            raise ConfigurationError(f"{name}: a saga has results or an error, so nothing is skipped")
        if choice in OF_STEPS:
            raise ConfigurationError(f"{name}: {choice} is declared at a step", hint=f"Step(…, {choice}=…)")
        if choice == "on_missing_key":
            raise ConfigurationError(f"{name}: a saga has no {choice}: without a key nobody could go on with it")
    return dict(choices)


def refuse_async(name: str, plan: Plan) -> None:
    for step in plan:
        for call in (step.do, step.undo, step.policy.find):
            if inspect.iscoroutinefunction(call):
                raise ConfigurationError(
                    f"{name}: step {step.name} is async, and a blocking saga cannot await it",
                    hint="use AsyncOnce, or once.aio.saga(…)",
                )


def annotation_of(plan: Plan) -> Any:
    """One annotation that names what all steps return: only those classes are rebuilt."""
    from types import GenericAlias

    return GenericAlias(tuple, tuple(result_annotation(step.do) for step in plan))


def codecs_of(client: Any, plan: Plan, policy: Policy) -> dict[str, Codec]:
    """For each step's result. The room in the journal is shared out evenly."""
    own = replace(
        policy, store_result=True, max_result_bytes=min(policy.max_result_bytes, LARGEST_JOURNAL // len(plan))
    )
    return {
        step.name: codec_for(
            own,
            ResultType(result_annotation(step.do)),
            client._cipher,  # noqa: SLF001 (its own faces call this)
            accept_plain=client._accept_plain,  # noqa: SLF001 (as above)
        )
        for step in plan
    }


def register(client: Any, saga: DeclaredSaga) -> None:
    first = client.sagas.get(saga.scope.text)
    if first is not None:
        raise ConfigurationError(f"two sagas are named {saga.name!r}: they would share their journals")
    client.sagas[saga.scope.text] = saga
    if saga.operation.policy.store_input:
        saga.operation.keep_input()
        client.recoverable.append(saga)


__all__ = ["AsyncSaga", "DeclaredSaga", "Saga", "SagaChoices", "Step", "StepContext"]

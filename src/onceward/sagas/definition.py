"""The definition of a saga, and the checks that reject definitions that cannot work.

In the end, the steps of a saga are all done or all undone. Only this order of kinds can keep that promise:

    compensatable …   can be undone
    pivot             at most one: the point of no return. If it is done, the saga only goes forward. If it certainly
                      is not done, the saga is undone
    retriable …       cannot be rejected, only delayed: retried until it is done

A step that was begun and has no result is settled before anything else happens. With `after_crash="rerun"`, `do` is
called again under the same derived key, for steps whose remote API recognises such a key. With `verify(find)`, the
effect is looked up. A step that allows neither declares `"park"`, and waits for an operator.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, Final, Literal

from msgspec import Struct

from onceward.errors import ConfigurationError
from onceward.protocol.duration import Duration
from onceward.protocol.policy import ErrorTypes, Policy, RetryDelay, Settings, verify

DEFAULT_ATTEMPTS: Final = 3
"""Default for a step that may be rejected. Enough to survive a transient error."""

REQUIRED_ATTEMPTS: Final = 10
"""Default for an undo or a retriable step, which must succeed. After that, an operator must decide."""

MAX_STEPS: Final = 64
MAX_NAME_LENGTH: Final = 64

KindName = Literal["compensatable", "pivot", "retriable"]


class StepKind(StrEnum):
    """What may happen to a step: see the top of this module."""

    COMPENSATABLE = "compensatable"
    PIVOT = "pivot"
    RETRIABLE = "retriable"


ORDER: Final = (StepKind.COMPENSATABLE, StepKind.PIVOT, StepKind.RETRIABLE)


class _Named(Struct, frozen=True):
    name: str
    do: Callable[..., Any]


class Step(_Named, frozen=True, kw_only=True):
    """One step, as it is declared. `do`, `undo` and verify's `find` are called with a `StepContext`.

    A step with `undo` is compensatable. For a step without, pass `kind="pivot"` or `kind="retriable"`.

    - `name`: its name in the journal and in derived keys. Do not change it while sagas are running.
    - `after_crash`: what happens to the step after a crash: `"rerun"`, `"park"` or `verify(find)`.
    - `final`: exceptions after which the step is not tried again.
    - `not_applied`: exceptions that prove that the step took no effect.
    - `max_attempts`, `undo_attempts`: how often `do` and `undo` are tried.
    - `retry_delay`: how long to wait between attempts.
    """

    undo: Callable[..., Any] | None = None
    kind: KindName | None = None
    after_crash: Literal["rerun", "park"] | verify = "rerun"
    final: ErrorTypes = ()
    not_applied: ErrorTypes = ()
    max_attempts: int | None = None
    undo_attempts: int = REQUIRED_ATTEMPTS
    retry_delay: RetryDelay | None = None


class PlannedStep(Struct, frozen=True):
    """One step whose declaration was checked."""

    name: str
    kind: StepKind
    do: Callable[..., Any]
    undo: Callable[..., Any] | None
    policy: Policy
    max_attempts: int
    undo_attempts: int


Plan = tuple[PlannedStep, ...]


def exponential_delay(attempt: int) -> Duration:
    """Return the seconds before the next attempt: 0.2, 0.4, 0.8 … up to 30."""
    return float(min(0.1 * 2 ** min(attempt, 16), 30.0))


def plan_of(saga: str, steps: Sequence[Step]) -> Plan:
    """Check the steps, and return them as a plan. Raise ConfigurationError if they cannot keep the promise."""
    if not steps:
        raise ConfigurationError(f"the saga {saga!r} has no steps", hint='Step("charge", charge, undo=refund)')
    if len(steps) > MAX_STEPS:
        raise ConfigurationError(f"the saga {saga!r} has {len(steps)} steps; the maximum is {MAX_STEPS}")
    plan = tuple(_planned_step(saga, step) for step in steps)
    seen: set[str] = set()
    for before, step in zip((None, *plan), plan, strict=False):
        if step.name in seen:
            raise ConfigurationError(f"{saga}: two steps are named {step.name!r}", hint="their keys would be the same")
        seen.add(step.name)
        if before is not None and ORDER.index(step.kind) < ORDER.index(before.kind):
            raise ConfigurationError(
                f"{saga}: {step.name} is {step.kind} and comes after {before.name}, which is {before.kind}",
                hint="the order is: compensatable steps, at most one pivot, retriable steps",
            )
        if before is not None and before.kind is step.kind is StepKind.PIVOT:
            raise ConfigurationError(
                f"{saga}: {before.name} and {step.name} are both the pivot",
                hint="if the second one were rejected, the first one could not be undone",
            )
    return plan


def _planned_step(saga: str, step: Step) -> PlannedStep:
    if not isinstance(step, Step):
        raise ConfigurationError(f"{saga}: {step!r} is not a Step", hint='Step("charge", charge, undo=refund)')
    name = step.name
    if not isinstance(name, str) or not name or len(name) > MAX_NAME_LENGTH or "/" in name or not name.isprintable():
        raise ConfigurationError(
            f"{saga}: {name!r} is not a valid step name", hint=f"1 to {MAX_NAME_LENGTH} printable characters, without /"
        )
    for option, call in (("do", step.do), ("undo", step.undo)):
        if call is not None and not callable(call):
            raise ConfigurationError(f"{saga}: {option} of {name} is not callable: {call!r}")
        if inspect.isgeneratorfunction(call) or inspect.isasyncgenfunction(call):
            raise ConfigurationError(
                f"{saga}: {option} of {name} is a generator function", hint="return a value instead"
            )
    kind = _kind_of(saga, step)
    settings: Settings = {
        "after_crash": step.after_crash,
        "final": step.final,
        "not_applied": step.not_applied,
        "retry_delay": exponential_delay if step.retry_delay is None else step.retry_delay,
        "max_attempts": step.max_attempts,
    }
    try:
        policy = Policy().with_settings(settings)
        Policy().with_settings({"max_attempts": step.undo_attempts})
    except ConfigurationError as error:
        raise ConfigurationError(f"{saga}: {name}: {error}") from None
    default = REQUIRED_ATTEMPTS if kind is StepKind.RETRIABLE else DEFAULT_ATTEMPTS
    return PlannedStep(name, kind, step.do, step.undo, policy, policy.max_attempts or default, step.undo_attempts)


def _kind_of(saga: str, step: Step) -> StepKind:
    if step.kind is not None and step.kind not in ORDER:
        raise ConfigurationError(
            f"{saga}: {step.name} cannot be {step.kind!r}", hint=f"choose one of: {', '.join(ORDER)}"
        )
    kind = StepKind(step.kind) if step.kind is not None else None
    if kind is None:
        if step.undo is None:
            raise ConfigurationError(
                f"{saga}: {step.name} has no undo",
                hint='pass undo=; or kind="pivot" or kind="retriable" if it cannot or need not be undone',
            )
        return StepKind.COMPENSATABLE
    if (step.undo is None) is (kind is StepKind.COMPENSATABLE):
        problem = "needs an undo" if step.undo is None else "has an undo that would never be called"
        raise ConfigurationError(f"{saga}: {step.name} is {kind} and {problem}")
    if kind is StepKind.RETRIABLE and step.final != ():
        raise ConfigurationError(
            f"{saga}: {step.name} is retriable, so none of its errors is final",
            hint="a step that may be rejected must come earlier",
        )
    return kind

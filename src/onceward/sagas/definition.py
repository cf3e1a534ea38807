"""A saga: steps that are all done in the end, or all undone. The definition, and what of it cannot work.

The kinds, in the only order in which the promise can be kept:

    compensatable …   can be undone
    pivot             at most one: the point of no return. Done: the saga goes forward. Not done: it is undone
    retriable …       cannot be refused, only delayed: tried until it is done

A step that was begun and did not answer is settled before anything else happens: `do` again under the same derived key
(`after_crash="rerun"`, for steps whose remote knows such a key), or looked up (`verify(find)`). One that allows neither
says `"park"`, and waits for a person.
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
from onceward.protocol.record import AfterCrash

ATTEMPTS: Final = 3
"""Of a step that may also be given up: a passing trouble has passed by then."""

PATIENT_ATTEMPTS: Final = 10
"""Of what must succeed, an undo or a retriable step, before a person is asked."""

MOST_STEPS: Final = 64
LONGEST_NAME: Final = 64

KindName = Literal["compensatable", "pivot", "retriable"]


class StepKind(StrEnum):
    """What may be done about a step."""

    COMPENSATABLE = "compensatable"
    PIVOT = "pivot"
    RETRIABLE = "retriable"


ORDER: Final = (StepKind.COMPENSATABLE, StepKind.PIVOT, StepKind.RETRIABLE)


class _Named(Struct, frozen=True):
    name: str
    do: Callable[..., Any]


class Step(_Named, frozen=True, kw_only=True):
    """One step, as it is declared. `do`, `undo` and verify's `find` are called with a `StepRun`.

    `kind` follows from `undo`: with it a step is compensatable. Without it, say "pivot" or "retriable".
    """

    undo: Callable[..., Any] | None = None
    kind: KindName | None = None
    after_crash: Literal["rerun", "park"] | verify = "rerun"
    final: ErrorTypes = ()
    not_applied: ErrorTypes = ()
    max_attempts: int | None = None
    undo_attempts: int = PATIENT_ATTEMPTS
    retry_delay: RetryDelay | None = None


class PlannedStep(Struct, frozen=True):
    """One step, checked."""

    name: str
    kind: StepKind
    do: Callable[..., Any]
    undo: Callable[..., Any] | None
    policy: Policy
    max_attempts: int
    undo_attempts: int

    @property
    def after_crash(self) -> AfterCrash:
        return self.policy.after_crash


Plan = tuple[PlannedStep, ...]


def doubling(attempt: int) -> Duration:
    """Seconds before the next attempt: 0.2, 0.4, 0.8 … and never more than half a minute."""
    return float(min(0.1 * 2 ** min(attempt, 16), 30.0))


def plan_of(saga: str, steps: Sequence[Step]) -> Plan:
    """The steps, if they can keep the promise."""
    if not steps:
        raise ConfigurationError(f"the saga {saga!r} has no steps", hint='Step("charge", charge, undo=refund)')
    if len(steps) > MOST_STEPS:
        raise ConfigurationError(f"the saga {saga!r} has {len(steps)} steps, and {MOST_STEPS} is the most")
    plan = tuple(_planned(saga, step) for step in steps)
    seen: set[str] = set()
    for before, step in zip((None, *plan), plan, strict=False):
        if step.name in seen:
            raise ConfigurationError(f"{saga}: two steps are named {step.name!r}", hint="their keys would be the same")
        seen.add(step.name)
        if before is not None and ORDER.index(step.kind) < ORDER.index(before.kind):
            raise ConfigurationError(
                f"{saga}: {step.name} is {step.kind} and comes after {before.name}, which is {before.kind}",
                hint="first what can be undone, then at most one pivot, then what can only be delayed",
            )
        if before is not None and before.kind is step.kind is StepKind.PIVOT:
            raise ConfigurationError(
                f"{saga}: {before.name} and {step.name} are both the pivot",
                hint="if the second were refused, the first could not be undone",
            )
    return plan


def _planned(saga: str, step: Step) -> PlannedStep:
    if not isinstance(step, Step):
        raise ConfigurationError(f"{saga}: {step!r} is no step", hint='Step("charge", charge, undo=refund)')
    name = step.name
    if not isinstance(name, str) or not name or len(name) > LONGEST_NAME or "/" in name or not name.isprintable():
        raise ConfigurationError(
            f"{saga}: {name!r} is no name of a step", hint=f"1 to {LONGEST_NAME} printable characters, without /"
        )
    for word, call in (("do", step.do), ("undo", step.undo)):
        if call is not None and not callable(call):
            raise ConfigurationError(f"{saga}: {word} of {name} cannot be called: {call!r}")
        if inspect.isgeneratorfunction(call) or inspect.isasyncgenfunction(call):
            raise ConfigurationError(f"{saga}: {word} of {name} yields", hint="let it return instead")
    kind = _kind(saga, step)
    settings: Settings = {
        "after_crash": step.after_crash,
        "final": step.final,
        "not_applied": step.not_applied,
        "retry_delay": doubling if step.retry_delay is None else step.retry_delay,
        "max_attempts": step.max_attempts,
    }
    try:
        policy = Policy().with_settings(settings)
        Policy().with_settings({"max_attempts": step.undo_attempts})
    except ConfigurationError as error:
        raise ConfigurationError(f"{saga}: {name}: {error}") from None
    usual = PATIENT_ATTEMPTS if kind is StepKind.RETRIABLE else ATTEMPTS
    return PlannedStep(name, kind, step.do, step.undo, policy, policy.max_attempts or usual, step.undo_attempts)


def _kind(saga: str, step: Step) -> StepKind:
    if step.kind is not None and step.kind not in ORDER:
        raise ConfigurationError(
            f"{saga}: {step.name} cannot be {step.kind!r}", hint=f"choose one of: {', '.join(ORDER)}"
        )
    kind = StepKind(step.kind) if step.kind is not None else None
    if kind is None:
        if step.undo is None:
            raise ConfigurationError(
                f"{saga}: {step.name} has no undo",
                hint='give undo=, or say kind="pivot" or kind="retriable" if it cannot or need not be undone',
            )
        return StepKind.COMPENSATABLE
    if (step.undo is None) is (kind is StepKind.COMPENSATABLE):
        what = "needs an undo" if step.undo is None else "has an undo that would never be called"
        raise ConfigurationError(f"{saga}: {step.name} is {kind} and {what}")
    if kind is StepKind.RETRIABLE and step.final != ():
        raise ConfigurationError(
            f"{saga}: {step.name} is retriable, so no error of it is final", hint="what may be refused comes earlier"
        )
    return kind

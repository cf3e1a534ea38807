"""Onceward: work that is delivered at least once gets an effect that happens exactly once."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._version import __version__
from .claims import AsyncClaim, Claim, current_async_claim, current_claim
from .client import Once
from .errors import (
    AlreadyCompleted,
    AlreadyDone,
    AlreadyRunning,
    ClaimError,
    ConfigurationError,
    InputNotStored,
    InvalidKey,
    LeaseLost,
    LeaseOverdue,
    MissingExtra,
    MissingKey,
    NotAcquired,
    OncewardError,
    OutcomeParked,
    OutcomeUnknown,
    PayloadMismatch,
    PreviouslyFailed,
    Reentrant,
    ResultCorrupt,
    ResultError,
    ResultNotStored,
    RetryTransaction,
    SourceEdited,
    SourceError,
    StillRunning,
    Stopping,
    StoreBroken,
    StoreError,
    StoreFull,
    StoreNotSetUp,
    StoreUnavailable,
    UnknownCodec,
    VersionSkew,
    WrongWorld,
)
from .function import Function
from .model.audit import AuditEntry
from .model.content import content_key
from .model.key import Key, Scope
from .model.outcome import Executed, Failed, Mismatch, Outcome, Parked, Replayed, Running, Stale, Unknown
from .model.policy import abandon, applied, inconclusive, not_applied, verify
from .model.record import State
from .model.sources import Content, JsonKey, OncewardWarning, Payload
from .model.view import Entry
from .model.window import Window, calendar, forever, lasting, sliding
from .observe.events import Event
from .stores.registry import open_store

if TYPE_CHECKING:
    from .aio import AsyncOnce
    from .async_function import AsyncFunction
    from .core.step_run import StepRun
    from .locks import AsyncHeldLock, AsyncLock, HeldLock, Lock
    from .model.counts import Tally
    from .model.ordering import Ordering
    from .model.recovery import Recovered, Recovery
    from .model.saga import Step
    from .model.schedule import Missed, Ran
    from .model.state_event import Current, Known, StateEvent, deleted
    from .observe.rules import Broken
    from .operations import Operations
    from .sagas import AsyncSaga, Saga
    from .schedules import AsyncScheduled, Scheduled
    from .stores.memory import MemoryStore

_LATER = {
    "AsyncFunction": "onceward.async_function",
    "AsyncOnce": "onceward.aio",
    "MemoryStore": "onceward.stores.memory",
}
_LATER |= dict.fromkeys(("AsyncHeldLock", "AsyncLock", "HeldLock", "Lock"), "onceward.locks")
_LATER["Operations"] = "onceward.operations"
_LATER |= {"Broken": "onceward.observe.rules", "Tally": "onceward.model.counts"}
_LATER |= dict.fromkeys(("Current", "Known", "StateEvent", "deleted"), "onceward.model.state_event")
_LATER["Ordering"] = "onceward.model.ordering"
_LATER |= dict.fromkeys(("AsyncScheduled", "Scheduled"), "onceward.schedules")
_LATER |= dict.fromkeys(("Missed", "Ran"), "onceward.model.schedule")
_LATER |= dict.fromkeys(("AsyncSaga", "Saga"), "onceward.sagas")
_LATER |= dict.fromkeys(("Recovered", "Recovery"), "onceward.model.recovery")
_LATER |= {"Step": "onceward.model.saga", "StepRun": "onceward.core.step_run"}


def __getattr__(name: str) -> Any:
    """The async face, and each store, is imported by those who use it: a blocking program never pays for asyncio."""
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    if name == "testing":
        return import_module("onceward.testing")
    raise AttributeError(f"module 'onceward' has no attribute {name!r}")


__all__ = [
    "AlreadyCompleted",
    "AlreadyDone",
    "AlreadyRunning",
    "AsyncClaim",
    "AsyncFunction",
    "AsyncHeldLock",
    "AsyncLock",
    "AsyncOnce",
    "AsyncSaga",
    "AsyncScheduled",
    "AuditEntry",
    "Broken",
    "Claim",
    "ClaimError",
    "ConfigurationError",
    "Content",
    "Current",
    "Entry",
    "Event",
    "Executed",
    "Failed",
    "Function",
    "HeldLock",
    "InputNotStored",
    "InvalidKey",
    "JsonKey",
    "Key",
    "Known",
    "LeaseLost",
    "LeaseOverdue",
    "Lock",
    "MemoryStore",
    "Mismatch",
    "Missed",
    "MissingExtra",
    "MissingKey",
    "NotAcquired",
    "Once",
    "OncewardError",
    "OncewardWarning",
    "Operations",
    "Ordering",
    "Outcome",
    "OutcomeParked",
    "OutcomeUnknown",
    "Parked",
    "Payload",
    "PayloadMismatch",
    "PreviouslyFailed",
    "Ran",
    "Recovered",
    "Recovery",
    "Reentrant",
    "Replayed",
    "ResultCorrupt",
    "ResultError",
    "ResultNotStored",
    "RetryTransaction",
    "Running",
    "Saga",
    "Scheduled",
    "Scope",
    "SourceEdited",
    "SourceError",
    "Stale",
    "State",
    "StateEvent",
    "Step",
    "StepRun",
    "StillRunning",
    "Stopping",
    "StoreBroken",
    "StoreError",
    "StoreFull",
    "StoreNotSetUp",
    "StoreUnavailable",
    "Tally",
    "Unknown",
    "UnknownCodec",
    "VersionSkew",
    "Window",
    "WrongWorld",
    "__version__",
    "abandon",
    "applied",
    "calendar",
    "content_key",
    "current_async_claim",
    "current_claim",
    "deleted",
    "forever",
    "inconclusive",
    "lasting",
    "not_applied",
    "open_store",
    "sliding",
    "verify",
]

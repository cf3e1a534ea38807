"""Onceward: run work once per key, although it is delivered more than once and workers crash.

Most programs need only the names below. Everything else is in the subpackages: `onceward.errors` (every exception),
`onceward.operations`, `onceward.locks`, `onceward.sagas`, `onceward.schedules`, `onceward.latest`, `onceward.recovery`,
`onceward.stores`, `onceward.results`, `onceward.observe`, `onceward.http`, `onceward.queues`, `onceward.people`,
`onceward.imports`, `onceward.warehouse`, `onceward.objects` and `onceward.testing`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._version import __version__
from .client.sync import Once
from .engine.entry import Entry
from .errors import (
    AlreadyDone,
    AlreadyRunning,
    ConfigurationError,
    InvalidKey,
    LeaseLost,
    MissingKey,
    NotAcquired,
    OncewardError,
    OncewardWarning,
    OutcomeParked,
    OutcomeUnknown,
    PayloadMismatch,
    PreviouslyFailed,
    RetryTransaction,
    StoreUnavailable,
)
from .keys.content import content_key
from .keys.key import Key, Scope
from .keys.sources import Content, JsonKey, Payload
from .operations.claim import AsyncClaim, Claim, current_async_claim, current_claim
from .protocol.outcome import Executed, Failed, Mismatch, Outcome, Parked, Replayed, Running, Stale, Unknown
from .protocol.policy import abandon, applied, inconclusive, not_applied, verify
from .protocol.record import RecordState
from .protocol.window import Window, calendar, forever, lasting, sliding
from .stores.registry import open_store

if TYPE_CHECKING:
    from . import testing as testing
    from .client.aio import AsyncOnce


if not TYPE_CHECKING:  # a type checker then knows exactly these names

    def __getattr__(name: str) -> Any:
        """Import the async client and the test tools on first use, so that other programs do not pay for them."""
        if name == "AsyncOnce":
            from .client.aio import AsyncOnce

            return AsyncOnce
        if name == "testing":
            return import_module("onceward.testing")
        raise AttributeError(f"module 'onceward' has no attribute {name!r}")


__all__ = [
    "AlreadyDone",
    "AlreadyRunning",
    "AsyncClaim",
    "AsyncOnce",
    "Claim",
    "ConfigurationError",
    "Content",
    "Entry",
    "Executed",
    "Failed",
    "InvalidKey",
    "JsonKey",
    "Key",
    "LeaseLost",
    "Mismatch",
    "MissingKey",
    "NotAcquired",
    "Once",
    "OncewardError",
    "OncewardWarning",
    "Outcome",
    "OutcomeParked",
    "OutcomeUnknown",
    "Parked",
    "Payload",
    "PayloadMismatch",
    "PreviouslyFailed",
    "RecordState",
    "Replayed",
    "RetryTransaction",
    "Running",
    "Scope",
    "Stale",
    "StoreUnavailable",
    "Unknown",
    "Window",
    "__version__",
    "abandon",
    "applied",
    "calendar",
    "content_key",
    "current_async_claim",
    "current_claim",
    "forever",
    "inconclusive",
    "lasting",
    "not_applied",
    "open_store",
    "sliding",
    "verify",
]

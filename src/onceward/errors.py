"""Every exception of Onceward, as one tree.

    OncewardError
    ├── ConfigurationError      a choice that cannot work; raised while declaring, before any effect
    │   ├── InvalidKey          a key or payload that has no stable meaning (also a ValueError)
    │   │   └── MissingKey      the key is empty, None or absent
    │   ├── InputNotStored      the call's arguments cannot be kept, as store_input asks for; nothing was begun
    │   ├── MissingExtra        an optional driver is not installed; names the extra
    │   └── WrongWorld          the blocking face was used on an event loop, or the other way round
    ├── NotAcquired             somebody else has the key, or had it: nothing was run
    │   ├── AlreadyRunning      another owner is alive
    │   │   └── StillRunning    ... and still was after we had waited
    │   ├── AlreadyDone         completed before; carries the result
    │   ├── PayloadMismatch     same key, other payload
    │   ├── PreviouslyFailed    failed before, and must not run (yet)
    │   ├── OutcomeParked       outcome unknown; a person, `verify` or the late owner must say
    │   └── Stopping            this process has stopped claiming
    ├── ClaimError              about a claim that we hold or held
    │   ├── LeaseLost           somebody else owns the key now; our write changed nothing
    │   │   └── LeaseOverdue    no answer from the store by the end of our lease; may still recover
    │   ├── AlreadyCompleted    completed before with another result
    │   ├── Reentrant           the same key is already held by this very call chain
    │   └── OutcomeUnknown      the effect is done, but the store never confirmed the record
    ├── ResultError             about a stored result
    │   ├── ResultNotStored     the effect is done, its result was not kept
    │   ├── ResultCorrupt       checksum or decryption failed; never a reason to run again
    │   └── UnknownCodec        written by a codec that this version does not know
    ├── SourceError             a file or a load that cannot be taken in as it is; says where and why
    │   └── SourceEdited        it is not the file whose import was begun
    └── StoreError              about the store itself
        ├── StoreUnavailable    down, locked, unreachable, over its deadline
        │   └── RetryTransaction  the caller's own transaction must be rolled back and repeated
        ├── StoreFull           no room; nothing was claimed
        ├── StoreBroken         not a database, corrupt, read-only, replaced
        │   └── StoreNotSetUp   no such database, tables or rights there: a wrong URL, or a step left out
        └── VersionSkew         the record or schema was written by a newer Onceward

Each class has a stable `code` (for logs and problem documents) and an `http_status`.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self


class OncewardError(Exception):
    """Root of the tree. `key` is the readable key concerned, where there is one."""

    code: ClassVar[str] = "onceward_error"
    http_status: ClassVar[int] = 500

    def __init__(self, message: str = "", *, key: str | None = None, hint: str | None = None) -> None:
        self.key = key
        self.hint = hint
        parts = [message or (type(self).__doc__ or "").partition("\n")[0]]
        if key is not None:
            parts.append(f"[key {key}]")
        if hint:
            parts.append(f"→ {hint}")
        super().__init__(" ".join(parts))

    def of(self, key: str) -> Self:
        """The same, with the key that it concerns: whoever raised it may have known no more than bytes."""
        if self.key is None:
            self.key = key
            hint = f" → {self.hint}" if self.hint else ""
            self.args = (f"{str(self).removesuffix(hint)} [key {key}]{hint}",)
        return self


class ConfigurationError(OncewardError):
    """A declared choice cannot work."""

    code = "configuration"


class InvalidKey(ConfigurationError, ValueError):
    """A key or payload has no stable meaning."""

    code = "invalid_key"
    http_status = 400


class MissingKey(InvalidKey):
    """The key is empty, None or absent."""

    code = "missing_key"


class InputNotStored(ConfigurationError, ValueError):
    """The arguments of a call cannot be kept, as `store_input` asks for; nothing was begun."""

    code = "input_not_stored"
    http_status = 400


class MissingExtra(ConfigurationError, ImportError):
    """An optional driver is not installed."""

    code = "missing_extra"


class WrongRuntime(ConfigurationError, RuntimeError):
    """The blocking face was used on an event loop, or the async face outside of one."""

    code = "wrong_world"


class NotAcquired(OncewardError):
    """Somebody else has the key, or had it: nothing was run. `reason` is the outcome's, in the operation's words."""

    code = "not_acquired"
    http_status = 409

    def __init__(self, message: str = "", *, reason: str = "", **details: Any) -> None:
        super().__init__(message, **details)
        self.reason = reason


class AlreadyRunning(NotAcquired):
    """Another owner is working on this key. `retry_after` is None when it is held without a lease."""

    code = "already_running"

    def __init__(self, message: str = "", *, retry_after: float | None = 0.0, **details: Any) -> None:
        super().__init__(message, **details)
        self.retry_after = retry_after


class StillRunning(AlreadyRunning):
    """Another owner was still working on this key after we had waited."""

    code = "still_running"


class AlreadyDone(NotAcquired):
    """This key was completed before. `value` is its result."""

    code = "already_done"

    def __init__(self, message: str = "", *, value: Any = None, stored: bool = True, **details: Any) -> None:
        super().__init__(message, **details)
        self.value = value
        self.stored = stored


class PayloadMismatch(NotAcquired):
    """The same key came with another payload. `arguments` names what differs, as far as known."""

    code = "payload_mismatch"
    http_status = 422

    def __init__(self, message: str = "", *, arguments: tuple[str, ...] = (), **details: Any) -> None:
        super().__init__(message, **details)
        self.arguments = arguments


class PreviouslyFailed(NotAcquired):
    """This key failed before and must not run (yet). `retry_after` is None when the failure is final."""

    code = "previously_failed"

    def __init__(
        self,
        message: str = "",
        *,
        error_type: str = "",
        error_message: str = "",
        retry_after: float | None = None,
        **details: Any,
    ) -> None:
        super().__init__(message, **details)
        self.error_type = error_type
        self.error_message = error_message
        self.retry_after = retry_after


class OutcomeParked(NotAcquired):
    """The outcome of an earlier attempt is unknown; it waits for somebody who knows."""

    code = "outcome_parked"


class Stopping(NotAcquired):
    """This process has stopped claiming."""

    code = "stopping"
    http_status = 503


class ClaimError(OncewardError):
    """About a claim that we hold or held."""

    code = "claim_error"


class LeaseLost(ClaimError):
    """Somebody else owns this key now; our write changed nothing."""

    code = "lease_lost"
    http_status = 409


class LeaseOverdue(LeaseLost):
    """The store has not confirmed our lease in time; renewing goes on and may recover."""

    code = "lease_overdue"


class AlreadyCompleted(ClaimError):
    """This claim was completed before with another result."""

    code = "already_completed"


class Reentrant(ClaimError):
    """The same key is already held by this very call chain."""

    code = "reentrant"


class OutcomeUnknown(ClaimError):
    """The effect is done, but the store never confirmed the record. `value` is the result."""

    code = "outcome_unknown"
    http_status = 503

    def __init__(self, message: str = "", *, value: Any = None, **details: Any) -> None:
        super().__init__(message, **details)
        self.value = value


class ResultError(OncewardError):
    """About a stored result."""

    code = "result_error"


class ResultNotStored(ResultError):
    """The effect is done, but its result was not kept."""

    code = "result_not_stored"
    http_status = 410


class ResultCorrupt(ResultError):
    """The stored result fails its checksum or cannot be decrypted."""

    code = "result_corrupt"


class UnknownCodec(ResultError):
    """The stored result was written by a codec that this version does not know."""

    code = "unknown_codec"


class SourceError(OncewardError):
    """A file or a load cannot be taken in as it is."""

    code = "source_error"
    http_status = 422


class SourceEdited(SourceError):
    """The file was edited since its import was begun."""

    code = "source_edited"
    http_status = 409


class StoreError(OncewardError):
    """About the store itself."""

    code = "store_error"
    http_status = 503


class StoreUnavailable(StoreError):
    """The store is down, locked, unreachable or over its deadline."""

    code = "store_unavailable"


class RetryTransaction(StoreUnavailable):
    """The caller's own transaction must be rolled back and repeated."""

    code = "retry_transaction"


class StoreFull(StoreError):
    """The store has no room; nothing was claimed."""

    code = "store_full"
    http_status = 507


class StoreBroken(StoreError):
    """The store is not a database, corrupt, read-only or replaced."""

    code = "store_broken"


class StoreNotSetUp(StoreBroken):
    """What the URL names was never made ready: no such database, no tables, no rights. It is never taken for down."""

    code = "store_not_set_up"


class VersionSkew(StoreError):
    """The record or schema was written by a newer Onceward than this one."""

    code = "version_skew"


NOT_DOWN = (VersionSkew, StoreNotSetUp)
"""The store answers, so it is not down: a wrong URL or a forgotten migration must not let work run unprotected."""


class OncewardWarning(UserWarning):
    """Something works, but probably not as it was meant."""

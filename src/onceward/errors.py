"""Every exception of Onceward, as one tree.

    OncewardError
    ├── ConfigurationError      a setting that cannot work; raised at declaration, before any effect
    │   ├── InvalidKey          a key or payload that cannot be encoded reliably (also a ValueError)
    │   │   └── MissingKey      the key is empty, None or absent
    │   ├── InputNotStored      store_input is set, but the arguments cannot be stored; nothing was run
    │   ├── MissingExtra        an optional driver is not installed; names the extra
    │   └── WrongRuntime        Once was used on an event loop, or AsyncOnce outside one
    ├── NotAcquired             the key was not acquired: nothing was run
    │   ├── AlreadyRunning      another worker is processing the key
    │   │   └── StillRunning    ... and still was after the wait
    │   ├── AlreadyDone         completed before; carries the result
    │   ├── PayloadMismatch     same key, different payload
    │   ├── PreviouslyFailed    failed before, and must not run (yet)
    │   ├── OutcomeParked       outcome unknown; an operator, `verify` or the late owner must resolve it
    │   └── Stopping            this process has stopped claiming
    ├── ClaimError              about a claim of this process
    │   ├── LeaseLost           another worker owns the key now; our write changed nothing
    │   │   └── LeaseOverdue    the store did not confirm our lease in time; may still recover
    │   ├── AlreadyCompleted    completed before with another result
    │   ├── Reentrant           the same key is already held by the current call chain
    │   └── OutcomeUnknown      the effect is done, but the store never confirmed the record
    ├── ResultError             about a stored result
    │   ├── ResultNotStored     the effect is done, but its result was not stored
    │   ├── ResultCorrupt       checksum or decryption failed; the work is not run again
    │   └── UnknownCodec        written by a codec that this version does not know
    ├── SourceError             a file or a load cannot be imported; says where and why
    │   └── SourceEdited        the file has changed since its import started
    └── StoreError              about the store itself
        ├── StoreUnavailable    down, locked, unreachable, over its deadline
        │   └── RetryTransaction  the caller's own transaction must be rolled back and repeated
        ├── StoreFull           no space left; nothing was claimed
        ├── StoreBroken         not a database, corrupt, read-only, replaced
        │   ├── RecordBroken    a record, or another row of the store, has invalid content
        │   └── StoreNotSetUp   no such database, tables or permissions: wrong URL or missing setup
        └── VersionSkew         the record or schema was written by a newer version of Onceward

Each class has a stable `code` (for logs and problem documents) and an `http_status`.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final, Self

DOCS_URL: Final = ""
"""Where the documentation is published, ending with a slash. Empty until it has a domain."""


class OncewardError(Exception):
    """Base class of all errors. `key` is the readable key, if the error is about one. `hint` says how to fix it."""

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
        self.add_note(f"Help: {self.page}")

    @property
    def page(self) -> str:
        """Where this error is explained: an address, or the command that prints the explanation."""
        anchor = self.code.replace("_", "-")
        return f"{DOCS_URL}howto/errors.html#{anchor}" if DOCS_URL else f"onceward docs errors#{anchor}"

    def with_key(self, key: str) -> Self:
        """Add the readable key, if the error has none: a store knows only the id."""
        if self.key is None:
            self.key = key
            hint = f" → {self.hint}" if self.hint else ""
            self.args = (f"{str(self).removesuffix(hint)} [key {key}]{hint}",)
        return self


class ConfigurationError(OncewardError):
    """A setting cannot work."""

    code = "configuration"


class InvalidKey(ConfigurationError, ValueError):
    """A key or payload cannot be encoded reliably."""

    code = "invalid_key"
    http_status = 400


class MissingKey(InvalidKey):
    """The key is empty, None or absent."""

    code = "missing_key"


class InputNotStored(ConfigurationError, ValueError):
    """`store_input` is set, but the arguments cannot be stored; nothing was run."""

    code = "input_not_stored"
    http_status = 400


class MissingExtra(ConfigurationError, ImportError):
    """An optional driver is not installed."""

    code = "missing_extra"


class WrongRuntime(ConfigurationError, RuntimeError):
    """`Once` was used on an event loop, or `AsyncOnce` outside one."""

    code = "wrong_runtime"


class NotAcquired(OncewardError):
    """The key was not acquired: nothing was run. `reason` is the reason of the outcome."""

    code = "not_acquired"
    http_status = 409

    def __init__(self, message: str = "", *, reason: str = "", **details: Any) -> None:
        super().__init__(message, **details)
        self.reason = reason


class AlreadyRunning(NotAcquired):
    """Another worker is already processing this key. `retry_after` is None if it has no lease."""

    code = "already_running"

    def __init__(self, message: str = "", *, retry_after: float | None = 0.0, **details: Any) -> None:
        super().__init__(message, **details)
        self.retry_after = retry_after


class StillRunning(AlreadyRunning):
    """Another worker was still processing this key after the wait."""

    code = "still_running"


class AlreadyDone(NotAcquired):
    """This key was completed before. `value` is its result."""

    code = "already_done"

    def __init__(self, message: str = "", *, value: Any = None, stored: bool = True, **details: Any) -> None:
        super().__init__(message, **details)
        self.value = value
        self.stored = stored


class PayloadMismatch(NotAcquired):
    """The key was used before with another payload. `arguments` names what differs, if known."""

    code = "payload_mismatch"
    http_status = 422

    def __init__(self, message: str = "", *, arguments: tuple[str, ...] = (), **details: Any) -> None:
        super().__init__(message, **details)
        self.arguments = arguments


class PreviouslyFailed(NotAcquired):
    """This key failed before and must not run (yet). `retry_after` is None if the failure is final."""

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
    """The outcome of an earlier attempt is unknown; it must be resolved."""

    code = "outcome_parked"


class Stopping(NotAcquired):
    """This process has stopped claiming."""

    code = "stopping"
    http_status = 503


class ClaimError(OncewardError):
    """An error about a claim of this process."""

    code = "claim_error"


class LeaseLost(ClaimError):
    """Another worker owns this key now; our write changed nothing."""

    code = "lease_lost"
    http_status = 409


class LeaseOverdue(LeaseLost):
    """The store has not confirmed our lease in time; renewals continue and may succeed."""

    code = "lease_overdue"


class AlreadyCompleted(ClaimError):
    """This claim was completed before with another result."""

    code = "already_completed"


class Reentrant(ClaimError):
    """The same key is already held by the current call chain."""

    code = "reentrant"


class OutcomeUnknown(ClaimError):
    """The effect is done, but the store never confirmed the record. `value` is the result."""

    code = "outcome_unknown"
    http_status = 503

    def __init__(self, message: str = "", *, value: Any = None, **details: Any) -> None:
        super().__init__(message, **details)
        self.value = value


class ResultError(OncewardError):
    """An error about a stored result."""

    code = "result_error"


class ResultNotStored(ResultError):
    """The effect is done, but its result was not stored."""

    code = "result_not_stored"
    http_status = 410


class ResultCorrupt(ResultError):
    """The stored result fails its checksum or cannot be decrypted."""

    code = "result_corrupt"


class UnknownCodec(ResultError):
    """The stored result was written by a codec that this version does not know."""

    code = "unknown_codec"


class SourceError(OncewardError):
    """A file or a load cannot be imported."""

    code = "source_error"
    http_status = 422


class SourceEdited(SourceError):
    """The file has changed since its import started."""

    code = "source_edited"
    http_status = 409


class StoreError(OncewardError):
    """An error of the store itself."""

    code = "store_error"
    http_status = 503


class StoreUnavailable(StoreError):
    """The store is down, locked, unreachable or over its deadline."""

    code = "store_unavailable"


class RetryTransaction(StoreUnavailable):
    """The caller's own transaction must be rolled back and repeated."""

    code = "retry_transaction"


class StoreFull(StoreError):
    """The store has no space left; nothing was claimed."""

    code = "store_full"
    http_status = 507


class StoreBroken(StoreError):
    """The store is not a database, or it is corrupt, read-only or was replaced."""

    code = "store_broken"


class RecordBroken(StoreBroken):
    """A record, or another row of the store, has invalid content. Other keys can be used."""

    code = "record_broken"


class StoreNotSetUp(StoreBroken):
    """The database or its tables do not exist, or permissions are missing. This never counts as a store outage."""

    code = "store_not_set_up"


class VersionSkew(StoreError):
    """The record or schema was written by a newer version of Onceward."""

    code = "version_skew"


NOT_DOWN = (VersionSkew, StoreNotSetUp, RecordBroken)
"""The store answers, so it is not down: a wrong URL, a missing migration or a damaged record must not let work run
unprotected."""


class OncewardWarning(UserWarning):
    """Something works, but probably not as intended."""

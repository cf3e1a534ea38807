"""Outcomes: what a call returns, always as a value. `unwrap()` returns the result or raises, like a plain call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Generic, NoReturn, TypeAlias, TypeGuard, TypeVar

from msgspec import Struct

from onceward import errors

from .hints import cli_command, resolve_hint
from .unstored import unstored_hint

T = TypeVar("T")


class Common(Struct, Generic[T], frozen=True, kw_only=True):
    """The fields of all outcomes. There are no outcomes but the classes below; `Outcome`, at the end, is their union.

    `value` is the result, if there is one; `key` the readable key; `reason` one word for logs and responses;
    `attempt` and `token` belong to the attempt that the outcome describes; `applied`: this call made the change.
    `kind` is the class in lower case, such as `"replayed"`. `executed` and `replayed` are true only for the classes of
    these names.
    """

    kind: ClassVar[str] = "outcome"
    replayed: ClassVar[bool] = False
    executed: ClassVar[bool] = False

    key: str
    value: T | None = None
    reason: str = ""
    attempt: int = 0
    token: int = 0
    applied: bool = False

    def unwrap(self) -> T:
        """Return the value, or raise the exception that says why there is none."""
        raise NotImplementedError

    def with_reason(self, message: str) -> str:
        """Return the exception message, prefixed with the operation's own reason if it has one."""
        return message if self.reason in ("", self.kind) else f"{self.reason}: {message}"

    def __str__(self) -> str:
        return self.reason or self.kind


class Executed(Common[T], frozen=True, kw_only=True):
    """The effect happened in this call. `conflict`: this event tied with another and won by its content hash."""

    kind: ClassVar[str] = "executed"
    executed: ClassVar[bool] = True
    value: T = None  # type: ignore[assignment]  # the work returned it, so it is a T
    reason: str = "executed"
    applied: bool = True
    conflict: bool = False

    def unwrap(self) -> T:
        return self.value


class Replayed(Common[T], frozen=True, kw_only=True):
    """The effect happened before; this is its stored result. `stored` False: it was not stored, `unstored` says why.

    `declared`: the function is declared with `store_result=False`, so that no result is expected. For an event: its
    message or the event itself is known, and the state did not change. `conflict`: it tied with another event.
    """

    kind: ClassVar[str] = "replayed"
    replayed: ClassVar[bool] = True
    reason: str = "replayed"
    stored: bool = True
    declared: bool = False
    conflict: bool = False
    unstored: str = ""

    def unwrap(self) -> T:
        if not self.stored and not self.declared:
            because = f": {self.unstored}" if self.unstored else ""
            raise errors.ResultNotStored(
                f"the effect happened before, but its result was not stored{because}",
                key=self.key,
                hint=f"the work is not run again; to store later results: {unstored_hint(self.unstored)}",
            )
        return self.value  # type: ignore[return-value]  # T may itself be None

    def already_done(self) -> errors.AlreadyDone:
        """Return the exception for callers that want to do the work, not to get its result (`on_done="raise"`)."""
        return errors.AlreadyDone(
            self.with_reason("this was done before"),
            key=self.key,
            value=self.value,
            stored=self.stored,
            reason=self.reason,
            hint="its result is in `.value`" if self.stored else f"its result was not stored {self.unstored}".rstrip(),
        )


class Running(Common[T], frozen=True, kw_only=True):
    """Another worker is already processing this key. Its lease ends in `retry_after` seconds; None: it has no lease.

    `owner` is the host and process of that worker. `waited`: it was still running after the wait.
    """

    kind: ClassVar[str] = "running"
    reason: str = "running"
    retry_after: float | None = 0.0
    owner: str = ""
    waited: bool = False

    def unwrap(self) -> NoReturn:
        error = errors.StillRunning if self.waited else errors.AlreadyRunning
        if self.retry_after is None:
            raise error(
                self.with_reason(f"{self.owner or 'another worker'} holds it without a lease, inside a transaction"),
                key=self.key,
                reason=self.reason,
                hint="if that process is dead, the key is never released: check what it did, then run "
                f"`{cli_command('forget', self.key, '--force')}`, or forget(key, force=True)",
                retry_after=None,
            )
        raise error(
            self.with_reason(f"{self.owner or 'another worker'} is processing it, and its lease has not expired"),
            key=self.key,
            reason=self.reason,
            hint=f"if that process is dead, its lease expires in {self.retry_after:.1f} s (a shorter lease= helps)",
            retry_after=self.retry_after,
        )


class Mismatch(Common[T], frozen=True, kw_only=True):
    """The key was used before with another payload. Nothing was run. `arguments` are the names of those that differ."""

    kind: ClassVar[str] = "mismatch"
    reason: str = "mismatch"
    arguments: tuple[str, ...] = ()

    def unwrap(self) -> NoReturn:
        which = f" (differs in: {', '.join(self.arguments)})" if self.arguments else ""
        raise errors.PayloadMismatch(
            self.with_reason(f"this key was used before with another payload{which}"),
            key=self.key,
            reason=self.reason,
            arguments=self.arguments,
            hint="use a new key for new work, or declare which arguments belong to the fingerprint; if the client's "
            "fingerprint_key has changed, every earlier payload counts as different",
        )


class Failed(Common[T], frozen=True, kw_only=True):
    """The work failed: now (`exception` is what it raised) or before (only the type and message are known).

    `error_type` and `error` are the type and message of the exception. `final`: it will not be tried again. Otherwise
    another attempt is possible in `retry_after` seconds; None: with the next call. `abandoned`: an operator decided
    that it must not run again.
    """

    kind: ClassVar[str] = "failed"
    reason: str = "failed"
    error_type: str = ""
    error: str = ""
    final: bool = False
    abandoned: bool = False
    retry_after: float | None = None
    exception: BaseException | None = None

    def unwrap(self) -> NoReturn:
        if self.exception is not None:
            try:
                raise self.exception
            finally:
                del self  # the traceback refers to this frame; drop the reference cycle
        if self.abandoned:
            raise self._abandoned_error()
        when = "it will not be retried" if self.final else f"it may be retried in {self.retry_after or 0:.1f} s"
        raise errors.PreviouslyFailed(
            self.with_reason(f"attempt {self.attempt} failed with {self.error_type}: {self.error} ({when})"),
            key=self.key,
            reason=self.reason,
            error_type=self.error_type,
            error_message=self.error,
            retry_after=None if self.final else self.retry_after,
            hint=f"`{cli_command('retry', self.key)}` lets it run again"
            if self.final
            else "deliver it again after that",
        )

    def _abandoned_error(self) -> errors.PreviouslyFailed:
        return errors.PreviouslyFailed(
            self.with_reason(f"an operator abandoned it after attempt {self.attempt}: it must not run again"),
            key=self.key,
            reason=self.reason,
            error_type=self.error_type,
            error_message=self.error,
            hint=f"`{cli_command('explain', self.key)}` says who did it and why",
        )


class Parked(Common[T], frozen=True, kw_only=True):
    """It is unknown whether the effect happened. `exception`: what the work raised, if it was parked in this call.

    `error_type` and `error` are the type and message of the failure. An operator resolves it with `once.resolve`.
    """

    kind: ClassVar[str] = "parked"
    reason: str = "parked"
    error_type: str = ""
    error: str = ""
    exception: BaseException | None = None

    def unwrap(self) -> NoReturn:
        if self.exception is not None:
            try:
                raise self.exception
            finally:
                del self  # the traceback refers to this frame; drop the reference cycle
        raise errors.OutcomeParked(
            self.with_reason(f"the outcome of attempt {self.attempt} is unknown ({self.error_type}: {self.error})"),
            key=self.key,
            reason=self.reason,
            hint=f"find out whether the effect happened, then say so: {resolve_hint(self.key)}; in Python, "
            "fn.resolve(applied(value) or not_applied, *args), or once.resolve(key, …, name=…)",
        )


class Stale(Common[T], frozen=True, kw_only=True):
    """A newer event was applied before; this one was ignored. `conflict`: they tied, and its content lost."""

    kind: ClassVar[str] = "stale"
    reason: str = "stale"
    conflict: bool = False

    def unwrap(self) -> T:
        return self.value  # type: ignore[return-value]  # no value, and no error


class Unknown(Common[T], frozen=True, kw_only=True):
    """The handler ran and returned `value`, but the store never confirmed the record.

    `lost`: another worker had taken over the key, so the result was rejected. `closed`: the client was closed before
    the work ended.
    """

    kind: ClassVar[str] = "unknown"
    reason: str = "unknown"
    lost: bool = False
    closed: bool = False

    def unwrap(self) -> NoReturn:
        if self.lost:
            raise errors.LeaseLost(
                "another worker took over before the result was recorded; this result was not stored",
                key=self.key,
                hint="use a longer lease, or fence the effect with claim.token",
            )
        hint = "read the key later: if it is still PENDING, its lease will expire and `after_crash` decides"
        if self.closed:
            raise errors.OutcomeUnknown(
                "the effect was done, but the client was closed before the work ended, so the store did not confirm it",
                key=self.key,
                value=self.value,
                hint=f"let close(timeout=…) wait for longer than the work takes; {hint}",
            )
        raise errors.OutcomeUnknown(
            "the effect was done, but the store did not confirm the record in time",
            key=self.key,
            value=self.value,
            hint=hint,
        )


if TYPE_CHECKING:  # a union: mypy narrows it to Executed[int]; a base class only to Executed[Any]
    Outcome: TypeAlias = (
        Executed[T] | Replayed[T] | Running[T] | Mismatch[T] | Failed[T] | Parked[T] | Stale[T] | Unknown[T]
    )
else:  # a class, so that isinstance and Outcome[int] work
    Outcome = Common
    Common.__name__ = Common.__qualname__ = "Outcome"


def is_outcome(value: object) -> TypeGuard[Outcome[Any]]:
    """Return whether a value of any type is an outcome."""
    return isinstance(value, Common)

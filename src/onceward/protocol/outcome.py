"""Outcomes: what the caller is told, always a value. `unwrap()` turns it into the plain call's answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Generic, NoReturn, TypeAlias, TypeGuard, TypeVar

from msgspec import Struct

from onceward import errors

from .hints import cli_command, resolve_hint
from .unstored import unstored_hint

T = TypeVar("T")


class Common(Struct, Generic[T], frozen=True, kw_only=True):
    """What all outcomes have: those below are all there are, and `Outcome`, at the end, is one of them.

    `value` is the result where there is one; `key` the readable key; `reason` one word for logs and answers;
    `attempt` and `token` those of the attempt that the outcome tells about; `applied`: this call made the change.
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
        """The value, or the exception that says why there is none."""
        raise NotImplementedError

    def told(self, message: str) -> str:
        """What an exception says, behind the operation's own word for it, if it has one."""
        return message if self.reason in ("", self.kind) else f"{self.reason}: {message}"

    def __str__(self) -> str:
        return self.reason or self.kind


class Executed(Common[T], frozen=True, kw_only=True):
    """The effect happened now, in this call. `conflict`: of two events that tie, this one has won by its content."""

    kind: ClassVar[str] = "executed"
    executed: ClassVar[bool] = True
    value: T = None  # type: ignore[assignment]  # what the work returned, and T is that
    reason: str = "executed"
    applied: bool = True
    conflict: bool = False

    def unwrap(self) -> T:
        return self.value


class Replayed(Common[T], frozen=True, kw_only=True):
    """The effect happened before; this is its stored result. `stored` False: it was not kept, `unstored` says why.

    Of an event: it is known. `applied` all the same: it came back newer, with other content, and that is the state.
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
                f"the effect happened before, but its result was not kept{because}",
                key=self.key,
                hint=f"nothing is run again; for the next ones: {unstored_hint(self.unstored)}",
            )
        return self.value  # type: ignore[return-value]  # T may itself be None

    def already_done(self) -> errors.AlreadyDone:
        """The exception for whoever wants to do it, not to have it."""
        return errors.AlreadyDone(
            self.told("this was done before"),
            key=self.key,
            value=self.value,
            stored=self.stored,
            reason=self.reason,
            hint="its result is in `.value`" if self.stored else f"its result was not kept {self.unstored}".rstrip(),
        )


class Running(Common[T], frozen=True, kw_only=True):
    """Somebody else is at it. `retry_after` seconds are left of its lease; None if it is held without a lease."""

    kind: ClassVar[str] = "running"
    reason: str = "running"
    retry_after: float | None = 0.0
    owner: str = ""
    waited: bool = False

    def unwrap(self) -> NoReturn:
        error = errors.StillRunning if self.waited else errors.AlreadyRunning
        if self.retry_after is None:
            raise error(
                self.told(f"held without a lease by {self.owner or 'another owner'}, inside of a transaction"),
                key=self.key,
                reason=self.reason,
                hint="nothing frees it if that process is dead: look what it did, then "
                f"`{cli_command('forget', self.key, '--force')}`, or forget(key, force=True)",
                retry_after=None,
            )
        raise error(
            self.told(f"{self.owner or 'another owner'} holds it, and was alive when it last renewed its lease"),
            key=self.key,
            reason=self.reason,
            hint=f"if that process is dead, the key is free in {self.retry_after:.1f} s (a shorter lease= helps)",
            retry_after=self.retry_after,
        )


class Mismatch(Common[T], frozen=True, kw_only=True):
    """The same key came before with another payload. Nothing was run."""

    kind: ClassVar[str] = "mismatch"
    reason: str = "mismatch"
    arguments: tuple[str, ...] = ()

    def unwrap(self) -> NoReturn:
        which = f" (differs in: {', '.join(self.arguments)})" if self.arguments else ""
        raise errors.PayloadMismatch(
            self.told(f"this key was used before with another payload{which}"),
            key=self.key,
            reason=self.reason,
            arguments=self.arguments,
            hint="use a new key for new work, or declare which arguments belong to the fingerprint",
        )


class Failed(Common[T], frozen=True, kw_only=True):
    """It failed: now (`exception` is what the handler raised) or before (only its name and message are known)."""

    kind: ClassVar[str] = "failed"
    reason: str = "failed"
    error_type: str = ""
    error: str = ""
    final: bool = False
    retry_after: float | None = None
    exception: BaseException | None = None

    def unwrap(self) -> NoReturn:
        if self.exception is not None:
            try:
                raise self.exception
            finally:
                del self  # its traceback leads here: from here none may lead back to it
        when = "it will not be tried again" if self.final else f"it may be tried again in {self.retry_after or 0:.1f} s"
        raise errors.PreviouslyFailed(
            self.told(f"attempt {self.attempt} failed with {self.error_type}: {self.error} ({when})"),
            key=self.key,
            reason=self.reason,
            error_type=self.error_type,
            error_message=self.error,
            retry_after=None if self.final else self.retry_after,
            hint=f"`{cli_command('retry', self.key)}` lets it run again" if self.final else "deliver it again then",
        )


class Parked(Common[T], frozen=True, kw_only=True):
    """Nobody knows whether the effect happened. `exception`: what was raised, if it happened in this call."""

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
                del self  # its traceback leads here: from here none may lead back to it
        raise errors.OutcomeParked(
            self.told(f"the outcome of attempt {self.attempt} is unknown ({self.error_type}: {self.error})"),
            key=self.key,
            reason=self.reason,
            hint=f"find out whether the effect happened, then say so: {resolve_hint(self.key)}; in Python, "
            "fn.resolve(applied(value) or not_applied, *args), or once.resolve(key, …, name=…)",
        )


class Stale(Common[T], frozen=True, kw_only=True):
    """A newer event has been applied already; this one was ignored. `conflict`: they tie, and its content lost."""

    kind: ClassVar[str] = "stale"
    reason: str = "stale"
    conflict: bool = False

    def unwrap(self) -> T:
        return self.value  # type: ignore[return-value]  # nothing to give, and nothing wrong


class Unknown(Common[T], frozen=True, kw_only=True):
    """The handler ran and returned `value`, but the store never confirmed the record."""

    kind: ClassVar[str] = "unknown"
    reason: str = "unknown"
    lost: bool = False

    def unwrap(self) -> NoReturn:
        if self.lost:
            raise errors.LeaseLost(
                "somebody else took over before we could record the result; ours was not stored",
                key=self.key,
                hint="make the lease longer, or the effect fenced by claim.token",
            )
        raise errors.OutcomeUnknown(
            "the effect was done, but the store did not confirm the record in time",
            key=self.key,
            value=self.value,
            hint="read the key later: if it is still PENDING its lease will lapse and `after_crash` decides",
        )


if TYPE_CHECKING:  # a union: mypy narrows Outcome[int] to Executed[int] then, and from a class only to Executed[Any]
    Outcome: TypeAlias = (
        Executed[T] | Replayed[T] | Running[T] | Mismatch[T] | Failed[T] | Parked[T] | Stale[T] | Unknown[T]
    )
else:  # a class, so that isinstance and Outcome[int] work
    Outcome = Common
    Common.__name__ = Common.__qualname__ = "Outcome"


def is_outcome(value: object) -> TypeGuard[Outcome[Any]]:
    """For what comes from elsewhere, of any type."""
    return isinstance(value, Common)

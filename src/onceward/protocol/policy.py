"""Policy: the settings of one operation, validated when they are declared."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from typing import Any, Final, Literal, Self, TypedDict, get_args

from msgspec import Struct
from msgspec.structs import asdict

from onceward.errors import ConfigurationError, OncewardWarning

from .duration import Duration, format_duration, microseconds
from .note import WINDOW
from .reasons import Reasons, parse_reasons
from .record import AfterCrash
from .suggest import did_you_mean
from .window import Window, lasting, parse_window

OnRunning = Literal["wait", "raise", "skip"]
OnDone = Literal["replay", "raise", "skip"]
OnStoreDown = Literal["raise", "run"]
OnMissingKey = Literal["raise", "run"]
OnLost = Literal["notify", "cancel"]
OpenTransaction = Literal["join", "refuse", "warn", "ignore"]
ErrorTypes = type[BaseException] | tuple[type[BaseException], ...]
RetryDelay = Duration | Callable[[int], Duration]
FingerprintSource = str | Collection[str] | Callable[..., Any]
"""`"all"`, `"none"`, a list of arguments and paths, or what `key=` takes."""

SECOND = 1_000_000
MIN_LEASE = SECOND // 20  # a shorter lease cannot survive a few round trips and a short pause
MAX_LEASE = 7 * 24 * 3600 * SECOND  # with a longer one, a dead owner would block its key for too long
MIN_SETTLE_TIME = 600 * SECOND  # the work is done, so a short outage must not lose its result
RENEWALS_PER_LEASE = 5  # four renewals in a row may fail before the lease expires
MIN_RENEWALS = 2  # with fewer, one late or failed renewal loses the lease, and the work runs twice
MIN_HEARTBEAT = MIN_LEASE // RENEWALS_PER_LEASE


class verify(Struct, frozen=True):  # noqa: N801 (reads as a word in after_crash=verify(find))
    """`after_crash=verify(find)`: after a crash, call `find` to check whether the effect happened.

    `find` gets the arguments of the function and returns `applied(value)`, `not_applied` or `inconclusive`. Its answer
    is only reliable once no earlier attempt can still take effect. `after` is how long that may take (the timeout of
    the effect itself). The lease minus one `heartbeat` interval (by default four fifths of the lease) passes before a
    takeover anyway; the new owner waits for the rest. It uses its own lease for this, so all workers of one operation
    must have the same lease.
    """

    find: Callable[..., Any]
    after: Duration = 0


class applied(Struct, frozen=True):  # noqa: N801 (reads as a word)
    """The effect happened, with this `value` as its result."""

    value: Any = None


class Finding(Struct, frozen=True):
    """A result of `verify` without a value."""

    word: str

    def __repr__(self) -> str:
        return self.word


not_applied = Finding("not_applied")
inconclusive = Finding("inconclusive")
abandon = Finding("abandon")


class CommonSettings(TypedDict, total=False):
    """All settings as users write them, except `on_running` and `on_done`."""

    lease: Duration
    heartbeat: Duration | None
    window: Window | Duration
    wait: Duration
    after_crash: Literal["rerun", "park"] | verify
    final: ErrorTypes
    retry: ErrorTypes | None
    not_applied: ErrorTypes
    max_attempts: int | None
    retry_delay: RetryDelay
    retry_span: Duration | None
    on_store_down: OnStoreDown
    on_missing_key: OnMissingKey
    on_lost: OnLost
    open_transaction: OpenTransaction
    settle_timeout: Duration | None
    fingerprint: FingerprintSource
    store_result: bool
    max_result_bytes: int
    compress_from: int | None
    reasons: Mapping[str, str]
    store_input: bool
    max_input_bytes: int


class Defaults(CommonSettings, total=False):
    """Settings of a whole client. Without `skip`: a call that may return None must say so where it is declared."""

    on_running: Literal["wait", "raise"]
    on_done: Literal["replay", "raise"]


class Settings(CommonSettings, total=False):
    """All settings. The defaults are those of `Policy`."""

    on_running: OnRunning
    on_done: OnDone


DEFAULT_WINDOW: Final = lasting("24h")


class Policy(Struct, frozen=True, dict=True, kw_only=True):
    """The settings, with all durations in µs."""

    lease: int = 60 * SECOND
    heartbeat: int | None = None  # between two renewals; None: a fifth of the lease
    window: Window = DEFAULT_WINDOW
    on_running: OnRunning = "wait"
    wait: int = 75 * SECOND  # longer than the lease: a caller takes over from an owner that crashed
    on_done: OnDone = "replay"
    after_crash: AfterCrash = AfterCrash.RERUN
    find: Callable[..., Any] | None = None
    verify_after: int = 0
    final: tuple[type[BaseException], ...] = ()
    retry: tuple[type[BaseException], ...] | None = None
    not_applied: tuple[type[BaseException], ...] = ()
    max_attempts: int = 0
    retry_delay: int | Callable[[int], Duration] = 0
    retry_span: int | None = None
    on_store_down: OnStoreDown = "raise"
    on_missing_key: OnMissingKey = "raise"
    on_lost: OnLost = "notify"
    open_transaction: OpenTransaction = "join"  # then rows and record are committed together, or not at all
    settle_timeout: int | None = None
    fingerprint: str | tuple[str, ...] | Callable[..., Any] = "all"
    store_result: bool = True
    max_result_bytes: int = 1 << 20
    compress_from: int | None = 4096
    reasons: Reasons = Reasons()
    store_input: bool = False
    max_input_bytes: int = 64 * 1024

    def with_settings(
        self, settings: Settings | Defaults, *, operation: str | None = "", also_allowed: Collection[str] = ()
    ) -> Self:
        """Return this policy with some settings replaced. Invalid settings raise here, before any effect.

        `operation` is the name for warnings; None if the caller has already warned. `also_allowed` are other names that
        are valid in the same place, for the hint about an unknown one.
        """
        merged = asdict(self)
        for name, value in settings.items():
            if name not in Settings.__optional_keys__:
                raise ConfigurationError(
                    f"there is no setting {name!r}",
                    hint=did_you_mean(name, Settings.__optional_keys__ | {*also_allowed}, "settings are"),
                )
            parse = _PARSERS.get(name)
            merged.update(parse(name, value) if parse else {name: value})
        if "heartbeat" not in settings and _is_too_long(merged["heartbeat"], merged["lease"]):
            merged["heartbeat"] = None  # it belongs to the longer lease that these settings replace
        policy = type(self)(**merged)
        _check(policy)
        warning = policy.short_window_warning() if operation is not None else None
        if warning is not None:
            warnings.warn(f"{operation}: {warning}" if operation else warning, OncewardWarning, stacklevel=4)
        return policy

    def short_window_warning(self) -> str | None:
        """Return a warning if the sender retries for longer than the window: a late redelivery would run again."""
        window, span = self.window, self.retry_span
        # A calendar day may end right after the claim, so it covers no retry span.
        if not span or not (window.kind == "calendar" or 0 < window.length < span):
            return None
        return (
            f"the window ({window}) is shorter than the sender's retry span ({format_duration(span)}): "
            "a late redelivery will run again"
        )

    @cached_property
    def window_note(self) -> dict[str, str]:
        """The note in which a claim stores the window, for an operator who resolves the record after it was parked.

        A claim stores the default window too, to replace the note of an earlier claim that declared another one.
        """
        return {WINDOW: str(self.window)} if self.may_be_parked else {}

    @cached_property
    def may_be_parked(self) -> bool:
        """Whether a crash may park the work: at once, or after its last attempt."""
        return self.after_crash is not AfterCrash.RERUN or self.max_attempts > 0

    @cached_property
    def call_timeout(self) -> float:
        """Seconds that one store call may take: at most a third of the lease, so that the call cannot outlive it."""
        return min(self.lease / 3, 5 * SECOND) / SECOND

    @property
    def settle_time(self) -> int:
        """The µs for which a settlement is repeated while the store does not answer."""
        return max(self.lease, MIN_SETTLE_TIME) if self.settle_timeout is None else self.settle_timeout

    @property
    def wait_before_find(self) -> int:
        """The µs that a new owner waits before it calls `find`, until no earlier attempt can still take effect."""
        interval = self.lease // RENEWALS_PER_LEASE if self.heartbeat is None else self.heartbeat
        return max(0, self.verify_after - (self.lease - interval))

    def delay_after(self, attempt: int) -> int:
        """Return the delay in µs between this attempt and the next."""
        return (
            microseconds(self.retry_delay(attempt), "retry_delay") if callable(self.retry_delay) else self.retry_delay
        )


def _duration(name: str, value: Any) -> dict[str, Any]:
    return {name: microseconds(value, name)}


def _duration_or_none(name: str, value: Any) -> dict[str, Any]:
    return {name: None if value is None else microseconds(value, name)}


def _choice(*allowed: str) -> Callable[[str, Any], dict[str, Any]]:
    def parse(name: str, value: Any) -> dict[str, Any]:
        if value not in allowed:
            raise ConfigurationError(f"{name} cannot be {value!r}", hint="choose one of: " + ", ".join(allowed))
        return {name: value}

    return parse


def _errors(name: str, value: Any) -> dict[str, Any]:
    types = tuple(value) if isinstance(value, tuple | list | set | frozenset) else (value,)
    for one in types:
        if not (isinstance(one, type) and issubclass(one, BaseException)):
            raise ConfigurationError(f"{name} must be exception types, not {one!r}")
    return {name: types}


def _after_crash(_name: str, value: Any) -> dict[str, Any]:
    if isinstance(value, verify):
        return {
            "after_crash": AfterCrash.VERIFY,
            "find": value.find,
            "verify_after": microseconds(value.after, "verify(after=)"),
        }
    modes = {"rerun": AfterCrash.RERUN, "park": AfterCrash.PARK}
    if not isinstance(value, str) or value not in modes:
        raise ConfigurationError(f"after_crash cannot be {value!r}", hint='choose "rerun", "park" or verify(find)')
    return {"after_crash": modes[value], "find": None, "verify_after": 0}


def _fingerprint(name: str, value: Any) -> dict[str, Any]:
    if callable(value) or (isinstance(value, str) and (value in ("all", "none") or "{" in value)):
        return {name: value}
    is_list = isinstance(value, Collection) and not isinstance(value, str)
    if not is_list or not all(isinstance(field, str) for field in value):
        raise ConfigurationError(
            f"{name} cannot be {value!r}",
            hint='choose "all", "none", a list of parameter names, or what key= takes, such as Payload(exclude=[…])',
        )
    return {name: tuple(value)}


def _flag(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, bool):
        raise ConfigurationError(f"{name} must be True or False, not {value!r}")
    return {name: value}


def _bytes(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigurationError(f"{name} must be a number of bytes, not {value!r}")
    return {name: value}


def _max_attempts(name: str, value: Any) -> dict[str, Any]:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise ConfigurationError(f"{name} must be at least 1, or None for no limit, not {value!r}")
    return {name: value or 0}


_PARSERS: dict[str, Callable[[str, Any], dict[str, Any]]] = {
    "lease": _duration,
    "heartbeat": _duration_or_none,
    "window": lambda name, value: {name: parse_window(value)},
    "on_running": _choice(*get_args(OnRunning)),
    "wait": _duration,
    "on_done": _choice(*get_args(OnDone)),
    "after_crash": _after_crash,
    "final": _errors,
    "retry": lambda name, value: {name: None} if value is None else _errors(name, value),
    "not_applied": _errors,
    "max_attempts": _max_attempts,
    "retry_delay": lambda name, value: {name: value} if callable(value) else _duration(name, value),
    "retry_span": _duration_or_none,
    "on_store_down": _choice(*get_args(OnStoreDown)),
    "on_missing_key": _choice(*get_args(OnMissingKey)),
    "on_lost": _choice(*get_args(OnLost)),
    "open_transaction": _choice(*get_args(OpenTransaction)),
    "settle_timeout": _duration_or_none,
    "fingerprint": _fingerprint,
    "store_result": _flag,
    "max_result_bytes": _bytes,
    "compress_from": lambda name, value: {name: None} if value is None else _bytes(name, value),
    "reasons": lambda name, value: {name: parse_reasons(value)},
    "store_input": _flag,
    "max_input_bytes": _bytes,
}


def _is_too_long(heartbeat: int | None, lease: int) -> bool:
    return heartbeat is not None and heartbeat > lease // MIN_RENEWALS


def _check(policy: Policy) -> None:
    if not MIN_LEASE <= policy.lease <= MAX_LEASE:
        raise ConfigurationError(
            f"a lease of {format_duration(policy.lease)} cannot work",
            hint="choose between 50ms and 7d; renewals extend it for as long as the work takes",
        )
    if policy.heartbeat is not None and (
        policy.heartbeat < MIN_HEARTBEAT or _is_too_long(policy.heartbeat, policy.lease)
    ):
        raise ConfigurationError(
            f"a heartbeat every {format_duration(policy.heartbeat)} cannot renew a lease of"
            f" {format_duration(policy.lease)} reliably",
            hint="choose between 10ms and half of the lease, or None for a fifth of the lease",
        )

"""The mode of a client, for a careful roll-out: enforce, observe or off.

enforce   duplicates are skipped
observe   keys are claimed and results are recorded, but every call runs. What would have been skipped is counted
          (event `would_skip`). An error of the store never prevents or fails a call
off       calls run as if they were not decorated, and the store is not used (event `switched_off`)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

from onceward.errors import ConfigurationError
from onceward.protocol.outcome import Mismatch

if TYPE_CHECKING:
    from .acquire import Refusal
    from .attempt import Attempt

Mode = Literal["enforce", "observe", "off"]
MODES = get_args(Mode)


class Rollout:
    """The mode of a client. All its engines share this object, so that a change at run time affects each of them."""

    def __init__(self) -> None:
        self.mode: Mode = "enforce"
        self.enforces = True

    def set(self, mode: Mode) -> None:
        self.mode, self.enforces = mode, mode == "enforce"


def parse_mode(value: Any, source: str) -> Mode:
    """Return the mode, or raise if there is no such mode. `source` says where it was set."""
    if value not in MODES:
        raise ConfigurationError(
            f"the mode cannot be {value!r} (from {source})", hint=f"choose one of: {', '.join(MODES)}"
        )
    mode: Mode = value
    return mode


def run_observed(attempts: Sequence[Attempt], refusals: Sequence[Refusal]) -> list[Refusal]:
    """Let refused attempts run anyway, unprotected, and count each as one that would have been skipped."""
    for one, refusal in zip(attempts, refusals, strict=True):
        if refusal is not None:
            one.unprotect("observe")
            count_would_skip(one, refusal)
    return [None for _ in attempts]


def count_would_skip(attempt: Attempt, refusal: Refusal) -> None:
    """Emit what the refusal would have been in the mode `enforce`."""
    reason = getattr(refusal, "reason", "") or type(refusal).__name__
    names = ", ".join(refusal.arguments) if isinstance(refusal, Mismatch) else ""
    attempt.engine.emit("would_skip", attempt.key, reason=reason, error=names and f"arguments differ: {names}")

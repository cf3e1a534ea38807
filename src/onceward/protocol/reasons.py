"""Reasons: the words an operation uses for its outcomes, in results, exceptions, events and logs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from onceward.errors import ConfigurationError

from .suggest import did_you_mean

MAX_WORD_LENGTH = 100  # a word for programs to compare, not a sentence


class Reasons(Struct, frozen=True):
    """One word per outcome."""

    executed: str = "executed"
    done: str = "replayed"
    running: str = "running"
    mismatch: str = "mismatch"
    failed: str = "failed"
    parked: str = "parked"
    unknown: str = "unknown"

    def customised(self) -> dict[str, str]:
        """Return the words that differ from the defaults."""
        defaults = asdict(DEFAULT_REASONS)
        return {name: word for name, word in asdict(self).items() if word != defaults[name]}


DEFAULT_REASONS = Reasons()


def parse_reasons(value: Any) -> Reasons:
    """Parse what users write: {"done": "already_emailed_today", "running": "send_in_progress"}."""
    if isinstance(value, Reasons):
        return value
    if not isinstance(value, Mapping):
        raise ConfigurationError(f"reasons cannot be {value!r}", hint='write reasons={"done": "already_emailed_today"}')
    for name, word in value.items():
        if name not in Reasons.__struct_fields__:
            raise ConfigurationError(
                f"there is no reason {name!r}", hint=did_you_mean(name, Reasons.__struct_fields__, "reasons are")
            )
        if not isinstance(word, str) or not 0 < len(word.strip()) <= MAX_WORD_LENGTH:
            raise ConfigurationError(f"the reason {name!r} must be a word, not {word!r}")
    return Reasons(**value)

"""Why a result was not kept: noted on the record, so that whoever misses it later can be told, and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from .note import UNSTORED

NOT_NAMED: Final = "is not named in the return annotation"
LIMIT: Final = "and the limit is"
MAX_LENGTH: Final = 300  # characters

_CURES: Final = {
    NOT_NAMED: "annotate the function with what it returns: -> Receipt",
    LIMIT: "raise max_result_bytes, or return where it is",
}
_ANY: Final = "return something storable, or declare store_result=False"


def unstored_note(brief: str) -> dict[str, str]:
    """What the completion leaves on the record. Never the place in the result, which may show keys of a dict."""
    return {UNSTORED: brief[:MAX_LENGTH]}


def unstored_reason(note: Mapping[str, str]) -> str:
    """The reason on a record; "" if there is none."""
    return note.get(UNSTORED, "")


def unstored_hint(reason: str) -> str:
    """What to change so that the next result is kept."""
    return next((unstored_hint for words, unstored_hint in _CURES.items() if words in reason), _ANY)

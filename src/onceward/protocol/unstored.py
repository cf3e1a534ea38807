"""Why a result was not stored. The record contains the reason; the error of a later replay adds a hint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from .note import UNSTORED

NOT_NAMED: Final = "is not named in the return annotation"
NOT_FOUND_BY_NAME: Final = "cannot be found by its name in its module"
LIMIT: Final = "and the limit is"
OVER_LIMIT: Final = "larger than max_response"
RESOLVED_WITHOUT: Final = "an operator resolved it without a value"
COMPLETED_WITHOUT: Final = "a block or an operator completed the key without a value"
MAX_LENGTH: Final = 300  # characters

_HINTS: Final = {
    NOT_NAMED: "annotate the function's return type: -> Receipt",
    NOT_FOUND_BY_NAME: "declare the class: once.claim(key, type=Receipt), or define it at the top of its module",
    OVER_LIMIT: "increase max_response=, or send a smaller response",
    COMPLETED_WITHOUT: "in a block, call claim.complete(value); in the shell, pass --result to onceward resolve",
    RESOLVED_WITHOUT: "pass the value to applied(…), or to onceward resolve with --result",
    LIMIT: "increase max_result_bytes, or return a reference to it",
}
_DEFAULT_HINT: Final = "return something storable, or declare store_result=False"


def unstored_note(reason: str) -> dict[str, str]:
    """Return the note for the record. The reason must not quote the result, such as keys of a dict."""
    return {UNSTORED: reason[:MAX_LENGTH]}


def unstored_reason(note: Mapping[str, str]) -> str:
    """Return the reason noted on a record; "" if there is none."""
    return note.get(UNSTORED, "")


def unstored_hint(reason: str) -> str:
    """Return what to change so that the next result is stored."""
    return next((hint for text, hint in _HINTS.items() if text in reason), _DEFAULT_HINT)

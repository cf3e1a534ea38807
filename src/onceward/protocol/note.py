"""Notes: small text metadata on a record.

Names that begin with `onceward:` are reserved: the stored input of a call, the journal of a saga, why a result was not
stored, where a failure was raised, and the window of work that may be parked. Every store writes notes with the claim,
a renewal or a settlement, fenced by token and nonce, and keeps them when another worker takes over. That is all these
features need, so they have no columns, tables or scripts of their own. Each of them has its own size limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from onceward.errors import ConfigurationError

MAX_NOTE_BYTES = 4096
"""Maximum UTF-8 bytes of all names and texts together: every claim of the key reads them."""

RESERVED: Final = "onceward:"
INPUT: Final = f"{RESERVED}input"
"""The arguments of a call, so that it can be finished without a redelivery."""

SAGA: Final = f"{RESERVED}saga"
"""The journal of a saga."""

UNSTORED: Final = f"{RESERVED}unstored"
"""Why a result was not stored."""

WINDOW: Final = f"{RESERVED}window"
"""The window of work that may be parked, for the operator who resolves it."""

KIND: Final = f"{RESERVED}kind"
"""What the record describes, if that decides how an operator may resolve it."""

HTTP_REQUEST: Final = "http request"
"""The kind of a request whose stored result is its response."""

FRAME: Final = f"{RESERVED}frame"
"""The application's function that raised the last failure: `module.function:line`."""


def user_notes(note: Mapping[str, str]) -> dict[str, str]:
    """Return the user's own notes."""
    return {word: text for word, text in note.items() if not word.startswith(RESERVED)}


def note_without_input(note: Mapping[str, str]) -> dict[str, str]:
    """Return the note that removes the stored input, which completed work no longer needs."""
    return {INPUT: ""} if note.get(INPUT) else {}


def validate_note(note: object, before: Mapping[str, str] = {}, *, key: str) -> dict[str, str]:
    """Return the note as plain text if it fits on the record together with the earlier notes."""
    if not isinstance(note, Mapping):
        raise ConfigurationError(
            f"a note must be a dict, not {type(note).__qualname__}", key=key, hint='note={"page": "3"}'
        )
    for word, text in note.items():
        if not isinstance(word, str) or not word:
            raise ConfigurationError(
                f"a note cannot be named {word!r}", key=key, hint="use a non-empty text as its name: page=…"
            )
        if word.startswith(RESERVED):
            raise ConfigurationError(f"the name of the note {word!r} is reserved", key=key, hint="omit the prefix")
        if not isinstance(text, str):
            raise ConfigurationError(
                f"the note {word!r} must be text, not {type(text).__qualname__}",
                key=key,
                hint=f"write {word}=str(…)",
            )
    plain = {str.__str__(word): str.__str__(text) for word, text in note.items()}
    size = sum(_size(word) + _size(text) for word, text in {**user_notes(before), **plain}.items())
    if size > MAX_NOTE_BYTES:
        raise ConfigurationError(
            f"the notes on this record would take {size} bytes; the limit is {MAX_NOTE_BYTES}",
            key=key,
            hint="store the data elsewhere, and note its location",
        )
    return plain


def _size(text: str) -> int:
    return len(text.encode("utf-8", "backslashreplace"))

"""Notes: small metadata on a record, text by text.

Words that begin with `onceward:` are ours: the stored input of a call, the journal of a saga, and why a result was not
kept. A note is what every store already writes in the claim, in a renewal and in a settlement, fenced by token and
nonce, and keeps across a take-over: that is all that they need, so none has columns, tables or scripts of its own. Each
has a limit of its own, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from onceward.errors import ConfigurationError

MAX_NOTE_BYTES = 4096
"""Bytes of UTF-8, words and texts together: every claim of the key reads them."""

RESERVED: Final = "onceward:"
INPUT: Final = f"{RESERVED}input"
"""The arguments of a call, for those who finish it without a redelivery."""

SAGA: Final = f"{RESERVED}saga"
"""How far a saga has come."""

UNSTORED: Final = f"{RESERVED}unstored"
"""Why a result was not kept."""


def user_notes(note: Mapping[str, str]) -> dict[str, str]:
    """What the user noted."""
    return {word: text for word, text in note.items() if not word.startswith(RESERVED)}


def note_without_input(note: Mapping[str, str]) -> dict[str, str]:
    """What is to be noted when the work turns out to be done: the input is no longer needed."""
    return {INPUT: ""} if note.get(INPUT) else {}


def validate_note(note: object, before: Mapping[str, str] = {}, *, key: str) -> dict[str, str]:
    """The note as plain text, if it can be kept on the record beside what was noted before."""
    if not isinstance(note, Mapping):
        raise ConfigurationError(f"a note is a dict, not {type(note).__qualname__}", key=key, hint='note={"page": "3"}')
    for word, text in note.items():
        if not isinstance(word, str) or not word:
            raise ConfigurationError(f"{word!r} is no name in a note", key=key, hint="name it by a text: page=…")
        if word.startswith(RESERVED):
            raise ConfigurationError(f"the note {word!r} has a name that is ours", key=key, hint="leave out the prefix")
        if not isinstance(text, str):
            raise ConfigurationError(
                f"the note {word!r} is {type(text).__qualname__}, and notes are text",
                key=key,
                hint=f"write {word}=str(…)",
            )
    plain = {str.__str__(word): str.__str__(text) for word, text in note.items()}
    size = sum(_size(word) + _size(text) for word, text in {**user_notes(before), **plain}.items())
    if size > MAX_NOTE_BYTES:
        raise ConfigurationError(
            f"the notes on this record would take {size} bytes, and {MAX_NOTE_BYTES} is the most",
            key=key,
            hint="keep the data elsewhere, and note where",
        )
    return plain


def _size(text: str) -> int:
    return len(text.encode("utf-8", "backslashreplace"))

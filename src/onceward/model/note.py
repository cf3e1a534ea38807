"""Notes: small metadata on a record, text by text."""

from __future__ import annotations

from collections.abc import Mapping

from onceward.errors import ConfigurationError

LARGEST = 4096
"""Bytes of UTF-8, words and texts together: every claim of the key reads them."""


def checked_note(note: object, before: Mapping[str, str] = {}, *, key: str) -> dict[str, str]:
    """The note as plain text, if it can be kept on the record beside what was noted before."""
    if not isinstance(note, Mapping):
        raise ConfigurationError(f"a note is a dict, not {type(note).__qualname__}", key=key, hint='note={"page": "3"}')
    for word, text in note.items():
        if not isinstance(word, str) or not word:
            raise ConfigurationError(f"{word!r} is no name in a note", key=key, hint="name it by a text: page=…")
        if not isinstance(text, str):
            raise ConfigurationError(
                f"the note {word!r} is {type(text).__qualname__}, and notes are text",
                key=key,
                hint=f"write {word}=str(…)",
            )
    plain = {str.__str__(word): str.__str__(text) for word, text in note.items()}
    size = sum(_size(word) + _size(text) for word, text in {**before, **plain}.items())
    if size > LARGEST:
        raise ConfigurationError(
            f"the notes on this record would take {size} bytes, and {LARGEST} is the most",
            key=key,
            hint="keep the data elsewhere, and note where",
        )
    return plain


def _size(text: str) -> int:
    return len(text.encode("utf-8", "backslashreplace"))

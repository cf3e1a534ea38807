"""The arguments of a call, kept on its record until it is done, so that others can finish it without a redelivery.

They are encoded as results are, never pickled: typed by the function's annotations, compressed, encrypted by the
client's cipher and bound to the record. They travel with the claim, in its note, so there is no moment at which one is
there without the other, on any store; and the completion drops them.
"""

from __future__ import annotations

import typing
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from types import GenericAlias
from typing import Any, Final

from onceward.errors import InputNotStored, ResultCorrupt
from onceward.protocol.note import INPUT

from .cipher import Cipher
from .codec import Codec
from .result_type import ResultType

DROPPED: Final = {INPUT: ""}
"""Noted on completion. A note's words can be emptied, not removed."""

_PART: Final = b"/input"
"""Sealed input does not open as a result of the same record, nor the other way round."""

Call = tuple[tuple[Any, ...], dict[str, Any]]


class InputCodec:
    """The arguments of one function, to a note and back."""

    def __init__(
        self,
        fn: Callable[..., Any],
        *,
        max_bytes: int,
        compress_from: int | None,
        cipher: Cipher | None,
        accept_plain: bool,
    ) -> None:
        self._max_bytes = max_bytes
        self._codec = Codec(
            ResultType(annotations_of(fn)),
            max_bytes=max_bytes,
            compress_from=compress_from,
            cipher=cipher,
            accept_plain=accept_plain,
        )

    def note(self, key_id: bytes, text: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, str]:
        """The note that keeps them, or InputNotStored. `text` is the readable key."""
        encoded = self._codec.encode([list(args), dict(kwargs)], key_id + _PART)
        if encoded.data is None:
            raise InputNotStored(
                f"the arguments cannot be kept: {encoded.reason}",
                key=text,
                hint=f"pass what can be stored, at most {self._max_bytes} bytes (max_input_bytes=), or where it is",
            )
        return {INPUT: b64encode(encoded.data).decode("ascii")}

    def call(self, key_id: bytes, note: Mapping[str, str]) -> Call | None:
        """The arguments that were kept; None if none were. Raises ResultError if they cannot be read."""
        data = input_in(note)
        if not data:
            return None
        args, kwargs = self._codec.decode(data, key_id + _PART)
        return tuple(args), kwargs


def input_in(note: Mapping[str, str]) -> bytes:
    """As it was encoded; empty if none is kept."""
    try:
        return b64decode(note.get(INPUT, ""), validate=True)
    except ValueError as error:
        raise ResultCorrupt("the stored input is not what was written") from error


def annotations_of(fn: Callable[..., Any]) -> Any:
    """One annotation that names all of the parameters' types: only those classes are rebuilt."""
    try:
        hints = {**typing.get_type_hints(fn, include_extras=True)}
    except Exception:  # noqa: BLE001 (as for results: what nobody can resolve was not declared)
        return Any
    hints.pop("return", None)
    return GenericAlias(tuple, tuple(hints.values()))

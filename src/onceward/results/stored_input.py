"""Store the arguments of a call on its record until it is done, so that it can be finished without a redelivery.

They are encoded like results, never pickled: typed by the function's annotations, compressed, encrypted with the
client's cipher and bound to the record. They are part of the claim's note, so every store writes the claim and its
input atomically. The completion removes them.
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

INPUT_REMOVED: Final = {INPUT: ""}
"""The note that a completion writes. An entry of a note can be emptied, but not removed."""

INPUT_PART: Final = b"/input"
"""Part of the associated data: encrypted input cannot be used as a result of the same record, or vice versa."""

Call = tuple[tuple[Any, ...], dict[str, Any]]


class InputCodec:
    """Encodes the arguments of one function as a note, and decodes them."""

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
            ResultType(parameter_types(fn), classes_only=True),
            max_bytes=max_bytes,
            compress_from=compress_from,
            cipher=cipher,
            accept_plain=accept_plain,
        )

    def note(self, key_id: bytes, text: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, str]:
        """Return the note with the arguments, or raise InputNotStored. `text` is the readable key."""
        encoded = self._codec.encode([list(args), dict(kwargs)], key_id + INPUT_PART)
        if encoded.data is None:
            raise InputNotStored(
                f"the arguments cannot be stored: {encoded.reason}",
                key=text,
                hint=f"pass storable values, at most {self._max_bytes} bytes (max_input_bytes=), or a reference",
            )
        return {INPUT: b64encode(encoded.data).decode("ascii")}

    def call(self, key_id: bytes, note: Mapping[str, str]) -> Call | None:
        """Return the stored arguments; None if there are none. Raise ResultError if they cannot be decoded."""
        data = stored_input_bytes(note)
        if not data:
            return None
        args, kwargs = self._codec.decode(data, key_id + INPUT_PART)
        return tuple(args), kwargs


def stored_input_bytes(note: Mapping[str, str]) -> bytes:
    """Return the encoded input; empty if there is none."""
    try:
        return b64decode(note.get(INPUT, ""), validate=True)
    except ValueError as error:
        raise ResultCorrupt("the stored input is damaged") from error


def parameter_types(fn: Callable[..., Any]) -> Any:
    """Return one annotation with the types of all parameters: only these classes are rebuilt."""
    try:
        hints = {**typing.get_type_hints(fn, include_extras=True)}
    except Exception:  # noqa: BLE001 (as for results: an unresolvable annotation declares nothing)
        return Any
    hints.pop("return", None)
    return GenericAlias(tuple, tuple(hints.values()))

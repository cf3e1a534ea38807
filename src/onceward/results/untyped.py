"""Decode stored results without their classes, to inspect a record where the code is not available."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from .cipher import Cipher
from .codec import Codec
from .rebuild import Shape, State
from .result_type import ResultType

_PYDANTIC: Final = frozenset({"fields", "extra", "fields_set", "private"})


class Fields(dict[str, Any]):
    """The state of an instance, by field. Hashable, because the instance may be a member of a set."""

    __hash__ = object.__hash__  # type: ignore[assignment]  # a dict has none


class _AnyClass(Mapping[str, Shape]):
    """A shape for every class name: instances become their fields."""

    def __getitem__(self, name: str) -> Shape:
        return Shape(name, Fields, dict, _fields)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


class _PlainFields(ResultType):
    """Decodes results of any function, and encodes only plain values."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__()
        self._by_name = _AnyClass()


def _fields(state: State) -> Fields:
    if state.keys() == _PYDANTIC:
        return Fields({**state["fields"], **(state["extra"] or {})})
    return Fields(state)


def fields_codec(cipher: Cipher | None = None, *, accept_plain: bool = False) -> Codec:
    """Return a codec that decodes results without their classes, with the cipher that encrypted them."""
    return Codec(_PlainFields(), cipher=cipher, accept_plain=accept_plain)


PLAIN_FIELDS: Final = Codec(_PlainFields())

"""What a place for objects must offer, and what a put answers."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from io import RawIOBase
from typing import Any, Final, Literal, Protocol, Self

from msgspec import Struct

Status = Literal["created", "same", "other"]
Deleted = Literal["deleted", "absent", "other"]
IfOther = Literal["raise", "tell", "beside"]

STAGING: Final = ".onceward-staging"
"""What is on its way lies here, under names of its own; no object's name may begin like this."""

PIECE: Final = 1 << 20


class Put(Struct, frozen=True):
    """What is under the name now.

    `created`: this call has put it there. `same`: this content was there already, perhaps by an earlier attempt of
    ours whose answer was lost. `other`: something else is there, and has been left as it is.
    """

    name: str
    content: str
    """`sha256:<hex>` of what was given."""

    size: int
    status: Status


class There:
    """An object that is there: which one it is (another one under the same name has another version), and its bytes."""

    def __init__(self, version: str, size: int, pieces: Iterator[bytes], file: RawIOBase | None = None) -> None:
        self.version = version
        self.size = size
        self.pieces = pieces
        self._file = file

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()


class ObjectBackend(Protocol):
    """Where the objects are. Names have been checked."""

    name: str

    def stage(self, pieces: Iterator[bytes]) -> Any:
        """Take all of it in, in constant memory, under no object's name."""
        ...

    def create(self, name: str, staged: Any) -> bool:
        """Give it its name, in one step, unless there is something of that name: False."""
        ...

    def unstage(self, staged: Any) -> None:
        """What was staged is not needed any more. Never raises: `purge` finds what is left."""
        ...

    def find(self, name: str) -> There | None: ...

    def version(self, name: str) -> str | None: ...

    def delete(self, name: str) -> None:
        """One that is not there is no error."""
        ...

    def names(self, prefix: str) -> Iterator[str]:
        """Those whose names begin so."""
        ...

    def purge(self, before: datetime) -> int:
        """Remove what was staged before then and never became an object: how many."""
        ...

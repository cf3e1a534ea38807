"""The interface of a storage backend, and the results of `put` and `delete`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from io import RawIOBase
from typing import Any, Final, Literal, Protocol, Self

from msgspec import Struct

Status = Literal["created", "same", "other"]
Deleted = Literal["deleted", "absent", "other"]
IfOther = Literal["raise", "return", "rename"]

STAGING: Final = ".onceward-staging"
"""Uploads that are not finished are stored here. No object name may begin with this."""

PIECE: Final = 1 << 20


class Put(Struct, frozen=True):
    """The result of a put: `name`, `content` (hash), `size` in bytes and `status`.

    `created`: this call created the object. `same`: this content was already stored, perhaps by an earlier attempt
    whose reply was lost. `other`: different content is stored under the name, and was not changed.
    """

    name: str
    content: str
    """`sha256:<hex>` of the source."""

    size: int
    status: Status


class StoredObject:
    """A stored object: its version, its size and its bytes. Another object under the same name has another version."""

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
    """Stores objects. The names that it gets have been checked."""

    name: str

    def stage(self, pieces: Iterator[bytes]) -> Any:
        """Store all pieces, in constant memory, but not yet under an object name."""
        ...

    def create(self, name: str, staged: Any) -> bool:
        """Publish the staged content under the name, atomically. Return False if the name is taken."""
        ...

    def unstage(self, staged: Any) -> None:
        """Remove the staged content. Never raises: `purge` removes what is left."""
        ...

    def find(self, name: str) -> StoredObject | None: ...

    def version(self, name: str) -> str | None: ...

    def delete(self, name: str) -> None:
        """Delete the object, if it exists."""
        ...

    def names(self, prefix: str) -> Iterator[str]:
        """Yield the names that begin with the prefix."""
        ...

    def purge(self, before: datetime) -> int:
        """Remove staged content that is older than this. Return how many items were removed."""
        ...

"""`Objects`: objects are created or left unchanged, and deleted only if they still have the expected content."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Self, get_args

from onceward.errors import ConfigurationError, PayloadMismatch, StoreUnavailable
from onceward.protocol.duration import Duration, microseconds

from .backend import Deleted, IfOther, ObjectBackend, Put, Status, StoredObject
from .names import checked_name, name_with_hash
from .sources import HashingReader, Source, pieces_of

if TYPE_CHECKING:
    from .aio import AsyncObjects

ATTEMPTS: Final = 5
"""Attempts to create a name that others create and delete at the same time."""

PURGE_AGE: Final = "24h"


class Objects:
    """The objects below a prefix. Several threads and processes may use it at the same time.

    `name` is that of an object, below the prefix and with `/` between its parts. A name that is too long or could leave
    the prefix raises `InvalidKey`. If the storage does not answer, methods raise `StoreUnavailable`.
    """

    def __init__(self, backend: ObjectBackend) -> None:
        self._backend = backend

    @property
    def name(self) -> str:
        """The URL of the objects."""
        return self._backend.name

    @property
    def aio(self) -> AsyncObjects:
        """The async version, for an event loop."""
        from .aio import AsyncObjects  # imported here: only async callers need asyncio

        return AsyncObjects(self)

    # ── writing ──

    def put(self, name: str, source: Source, *, content: str | None = None, if_other: IfOther = "raise") -> Put:
        """Create the object atomically, or leave the existing one: nothing is overwritten or stored partially.

        Args:
            name: Where to create it, below the prefix.
            source: Bytes, a path, a binary stream (from its current position) or an iterable of bytes.
            content: The expected hash, `sha256:<hex>`. If the source does not have it, nothing is created.
            if_other: What to do if the name already has other content: `"raise"`, `"return"` the status `other`, or
                `"rename"`: add the first digits of the content hash to the name.

        Returns:
            The name, content hash and size of the object, and the status: `created`, `same` if it existed before, or
            `other`.

        Raises:
            PayloadMismatch: The name has other content, or the source does not have the expected hash.
        """
        checked_name(name)
        if if_other not in get_args(IfOther):
            hint = 'write "raise", "return" or "rename"'
            raise ConfigurationError(f"if_other={if_other!r} is not supported", hint=hint)
        reader = HashingReader(pieces_of(source))
        staged = self._backend.stage(reader)
        try:
            if content is not None and reader.content != content:
                raise PayloadMismatch(
                    f"{self.name}: the source is no longer {content}; nothing was created",
                    key=name,
                    hint="the source has changed since it was hashed: hash it again, and claim the new hash",
                )
            return self._create(Put(name, reader.content, reader.size, "created"), staged, if_other)
        finally:
            self._backend.unstage(staged)

    def _create(self, put: Put, staged: Any, if_other: IfOther) -> Put:
        renamed = name_with_hash(put.name, put.content)
        if if_other == "rename" and self._compare(renamed, put) == "same":  # by an earlier attempt
            return Put(renamed, put.content, put.size, "same")
        name, status = put.name, self._create_or_compare(put.name, put, staged)
        if status == "other" and if_other == "rename":
            name, status = renamed, self._create_or_compare(renamed, put, staged)
        if status == "other" and if_other != "return":
            raise PayloadMismatch(
                f"{self.name} has other content under this name",
                key=name,
                hint='nothing was overwritten; use another name, or if_other="rename"',
            )
        return Put(name, put.content, put.size, status)

    def _create_or_compare(self, name: str, put: Put, staged: Any) -> Status:
        for _ in range(ATTEMPTS):
            if self._backend.create(name, staged):
                return "created"
            status = self._compare(name, put)
            if status is not None:
                return status
        raise StoreUnavailable(
            f"{self.name}: the object was created and deleted by others {ATTEMPTS} times during this put",
            key=name,
            hint="the put may be repeated",
        )

    def _compare(self, name: str, put: Put) -> Status | None:
        found = self._backend.find(name)
        if found is None:
            return None
        with found:
            return "same" if found.size == put.size and _content(found) == put.content else "other"

    def delete(self, name: str, content: str) -> Deleted:
        """Delete the object `name` if it still has this `content`, the hash that `put` returned. Use it to undo a step.

        Return `deleted`, `absent` if there is no such object (any more), or `other` if it has other content.

        Storage cannot compare and delete atomically. Objects are never overwritten, so the only race is another process
        that deletes the object and creates a new one under its name, within one round trip.
        """
        found = self._backend.find(checked_name(name))
        if found is None:
            return "absent"
        with found:
            if _content(found) != content:
                return "other"
        now = self._backend.version(name)  # reading may have taken a long time
        if now != found.version:
            return "absent" if now is None else "other"
        self._backend.delete(name)
        return "deleted"

    def purge(self, older_than: Duration = PURGE_AGE) -> int:
        """Remove unfinished uploads of killed workers, if they are older than `older_than`. Return how many."""
        return self._backend.purge(datetime.now(UTC) - timedelta(microseconds=microseconds(older_than, "older_than")))

    # ── reading ──

    def content(self, name: str) -> str | None:
        """Return `sha256:<hex>` of the object, which is read completely; None if there is none. For `verify(find)`."""
        found = self._backend.find(checked_name(name))
        if found is None:
            return None
        with found:
            return _content(found)

    def read(self, name: str) -> bytes:
        """Return the content. Raise `FileNotFoundError` if there is no such object."""
        return b"".join(self.pieces(name))

    def pieces(self, name: str) -> Iterator[bytes]:
        """Yield the content in pieces, for large objects. Raise `FileNotFoundError` if there is no such object."""
        found = self._backend.find(checked_name(name))
        if found is None:
            raise FileNotFoundError(f"{self.name} has no object {name!r}")
        with found:
            yield from found.pieces

    def names(self, prefix: str = "") -> Iterator[str]:
        """Yield the names that begin with `prefix`."""
        return self._backend.names(prefix)

    def close(self) -> None:
        """Do nothing: no resource is held between two calls."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Objects on {self.name}>"


def _content(found: StoredObject) -> str:
    reader = HashingReader(found.pieces)
    for _ in reader:
        pass
    return reader.content

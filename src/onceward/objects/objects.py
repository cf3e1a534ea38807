"""`Objects`: created or left as they are, deleted only while they are what we wrote."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Self, get_args

from onceward.errors import ConfigurationError, PayloadMismatch, StoreUnavailable
from onceward.protocol.duration import Duration, microseconds

from .backend import Deleted, IfOther, ObjectBackend, Put, Status, There
from .names import checked_name, marked_name
from .sources import Hashed, Source, pieces_of

if TYPE_CHECKING:
    from .aio import AsyncObjects

ATTEMPTS: Final = 5
"""At a name under which others create and delete at the same time."""

ABANDONED: Final = "24h"


class Objects:
    """The objects below a prefix. May be used by several threads and processes at once."""

    def __init__(self, place: ObjectBackend) -> None:
        self._place = place

    @property
    def name(self) -> str:
        """Where they are, as a URL."""
        return self._place.name

    @property
    def aio(self) -> AsyncObjects:
        """The same for an event loop."""
        from .aio import AsyncObjects  # asyncio is paid for by those who use it

        return AsyncObjects(self)

    # ── writing ──

    def put(self, name: str, source: Source, *, content: str | None = None, if_other: IfOther = "raise") -> Put:
        """Create the object in one step, or leave what is there: nothing is overwritten, and nothing is half there.

        The source is bytes, a path, a binary stream (from where it stands) or an iterable of bytes. If other content is
        under that name: `if_other="raise"` a `PayloadMismatch`, `"tell"` the answer says so, `"beside"` it gets a name
        with the first digits of its hash in it. If the source is not this `content`, a hash that was taken before,
        nothing is created: `PayloadMismatch`, too.
        """
        checked_name(name)
        if if_other not in get_args(IfOther):
            raise ConfigurationError(f"if_other={if_other!r} is not possible", hint='write "raise", "tell" or "beside"')
        hashed = Hashed(pieces_of(source))
        staged = self._place.stage(hashed)
        try:
            if content is not None and hashed.content != content:
                raise PayloadMismatch(
                    f"{self.name}: the source is no longer {content}; nothing was created",
                    key=name,
                    hint="it was changed meanwhile: claim what it is now",
                )
            return self._named(Put(name, hashed.content, hashed.size, "created"), staged, if_other)
        finally:
            self._place.unstage(staged)

    def _named(self, put: Put, staged: Any, if_other: IfOther) -> Put:
        beside = marked_name(put.name, put.content)
        if if_other == "beside" and self._compared(beside, put) == "same":  # by an earlier attempt
            return Put(beside, put.content, put.size, "same")
        name, status = put.name, self._created(put.name, put, staged)
        if status == "other" and if_other == "beside":
            name, status = beside, self._created(beside, put, staged)
        if status == "other" and if_other != "tell":
            raise PayloadMismatch(
                f"{self.name} has other content under this name",
                key=name,
                hint='nothing was overwritten; another name, or if_other="beside"',
            )
        return Put(name, put.content, put.size, status)

    def _created(self, name: str, put: Put, staged: Any) -> Status:
        for _ in range(ATTEMPTS):
            if self._place.create(name, staged):
                return "created"
            status = self._compared(name, put)
            if status is not None:
                return status
        raise StoreUnavailable(
            f"{self.name}: it was there and gone again, {ATTEMPTS} times", key=name, hint="the put may be repeated"
        )

    def _compared(self, name: str, put: Put) -> Status | None:
        there = self._place.find(name)
        if there is None:
            return None
        with there:
            return "same" if there.size == put.size and _content(there) == put.content else "other"

    def delete(self, name: str, content: str) -> Deleted:
        """Delete it if it is still this content, `put.content`; for the undo of a step. Repeated: `absent`.

        Storage cannot compare and delete in one step. Objects are never overwritten, so what might come between is
        somebody who deletes it and creates another one under its name, within one round trip.
        """
        there = self._place.find(checked_name(name))
        if there is None:
            return "absent"
        with there:
            if _content(there) != content:
                return "other"
        now = self._place.version(name)  # reading may have taken long
        if now != there.version:
            return "absent" if now is None else "other"
        self._place.delete(name)
        return "deleted"

    def purge(self, older_than: Duration = ABANDONED) -> int:
        """Remove what killed workers have left half-way: never an object, only what never became one. How many."""
        return self._place.purge(datetime.now(UTC) - timedelta(microseconds=microseconds(older_than, "older_than")))

    # ── reading ──

    def content(self, name: str) -> str | None:
        """`sha256:<hex>` of what is there, read to its end; None if nothing is. For `verify(find)`."""
        there = self._place.find(checked_name(name))
        if there is None:
            return None
        with there:
            return _content(there)

    def read(self, name: str) -> bytes:
        """All of it. `FileNotFoundError` if it is not there."""
        return b"".join(self.pieces(name))

    def pieces(self, name: str) -> Iterator[bytes]:
        """One piece after the other, for what may not fit into memory. `FileNotFoundError` if it is not there."""
        there = self._place.find(checked_name(name))
        if there is None:
            raise FileNotFoundError(f"{self.name} has no object {name!r}")
        with there:
            yield from there.pieces

    def names(self, prefix: str = "") -> Iterator[str]:
        """Those that begin with `prefix`."""
        return self._place.names(prefix)

    def close(self) -> None:
        """Nothing is held open between two calls."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Objects on {self.name}>"


def _content(there: There) -> str:
    hashed = Hashed(there.pieces)
    for _ in hashed:
        pass
    return hashed.content

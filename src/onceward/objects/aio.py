"""`AsyncObjects`: `Objects` for an event loop. Blocking calls run in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator
from tempfile import SpooledTemporaryFile
from typing import TYPE_CHECKING, Final, Self

from onceward.protocol.duration import Duration

from .backend import Deleted, IfOther, Put
from .sources import Source

if TYPE_CHECKING:
    from .objects import Objects

IN_MEMORY: Final = 1 << 20
"""Bytes of an asynchronous source that are buffered in memory. Beyond that, they are buffered on disk."""


class AsyncObjects:
    """Like `Objects`, with async methods. A source may also be an async iterable of bytes, such as a request body."""

    def __init__(self, objects: Objects) -> None:
        self.objects = objects

    @property
    def name(self) -> str:
        return self.objects.name

    async def put(
        self,
        name: str,
        source: Source | AsyncIterable[bytes],
        *,
        content: str | None = None,
        if_other: IfOther = "raise",
    ) -> Put:
        """Like `Objects.put`."""
        if not isinstance(source, AsyncIterable):
            return await asyncio.to_thread(self.objects.put, name, source, content=content, if_other=if_other)
        with SpooledTemporaryFile(IN_MEMORY) as spool:
            async for piece in source:
                await asyncio.to_thread(spool.write, piece)
            spool.seek(0)
            return await asyncio.to_thread(self.objects.put, name, spool, content=content, if_other=if_other)

    async def delete(self, name: str, content: str) -> Deleted:
        """Like `Objects.delete`."""
        return await asyncio.to_thread(self.objects.delete, name, content)

    async def purge(self, older_than: Duration = "24h") -> int:
        """Like `Objects.purge`."""
        return await asyncio.to_thread(self.objects.purge, older_than)

    async def content(self, name: str) -> str | None:
        """Like `Objects.content`."""
        return await asyncio.to_thread(self.objects.content, name)

    async def read(self, name: str) -> bytes:
        """Like `Objects.read`."""
        return await asyncio.to_thread(self.objects.read, name)

    async def pieces(self, name: str) -> AsyncIterator[bytes]:
        """Like `Objects.pieces`: `async for piece in objects.pieces(name)`."""
        pieces = self.objects.pieces(name)
        while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
            yield piece

    async def names(self, prefix: str = "") -> list[str]:
        """Like `Objects.names`, as a list."""
        return await asyncio.to_thread(lambda: list(self.objects.names(prefix)))

    async def close(self) -> None:
        self.objects.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

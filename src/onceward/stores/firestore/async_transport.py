"""Send calls to Firestore from event loops."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from asyncio import AbstractEventLoop
from typing import Any

from .transport import FirestoreTransport


class FirestoreAsyncTransport(FirestoreTransport):
    """Sends calls from event loops. Each loop has its own channel, because several loops may use one store."""

    def reset(self) -> None:
        self._apis: weakref.WeakKeyDictionary[AbstractEventLoop, Any] = weakref.WeakKeyDictionary()

    def open_channels(self) -> object:
        return list(self._apis.items())

    def _client(self) -> Any:
        loop = asyncio.get_running_loop()
        if loop not in self._apis:
            import grpc.aio
            from google.cloud.firestore_v1.services.firestore import FirestoreAsyncClient
            from google.cloud.firestore_v1.services.firestore.transports import FirestoreGrpcAsyncIOTransport

            self._apis[loop] = self._connect(
                FirestoreAsyncClient, FirestoreGrpcAsyncIOTransport, grpc.aio.insecure_channel
            )
        return self._apis[loop]

    async def call(self, method: str, request: Any, timeout: float) -> Any:
        with self._method(method) as send:
            return await send(request=request, timeout=timeout)

    async def call_stream(self, method: str, request: Any, timeout: float) -> list[Any]:
        with self._method(method) as send:
            return [answer async for answer in await send(request=request, timeout=timeout)]

    async def close(self) -> None:
        """Close this loop's channel. Only its own loop can close a channel; others are garbage-collected."""
        current_loop = None
        with contextlib.suppress(RuntimeError):
            current_loop = asyncio.get_running_loop()
        own = None if current_loop is None else self._apis.pop(current_loop, None)
        self.reset()
        if own is not None:
            await own.transport.close()

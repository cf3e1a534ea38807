"""Send calls to Firestore from event loops."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from asyncio import AbstractEventLoop
from typing import Any

from .address import FirestoreAddress
from .transport import CHANNEL_OPTIONS, CLIENT_ERRORS, call_metadata, credentials, error_from_client, target, transports


class FirestoreAsyncTransport:
    """Sends calls from event loops. Each loop has its own channel, because several loops may use one store."""

    def __init__(self, address: FirestoreAddress) -> None:
        self._address = address
        self._metadata = call_metadata(address)
        self.reset()
        transports.add(self)

    def reset(self) -> None:
        self._apis: weakref.WeakKeyDictionary[AbstractEventLoop, Any] = weakref.WeakKeyDictionary()

    def open_channels(self) -> object:
        return list(self._apis.items())

    def _client(self) -> Any:
        loop = asyncio.get_running_loop()
        api = self._apis.get(loop)
        if api is None:
            api = self._apis[loop] = _connect(self._address)
        return api

    async def call(self, method: str, request: Any, timeout: float) -> Any:
        try:
            method_call = getattr(self._client(), method)
            return await method_call(request=request, retry=None, timeout=timeout, metadata=self._metadata)
        except CLIENT_ERRORS as error:
            raise error_from_client(error, self._address.name) from error

    async def call_stream(self, method: str, request: Any, timeout: float) -> list[Any]:
        try:
            method_call = getattr(self._client(), method)
            answers = await method_call(request=request, retry=None, timeout=timeout, metadata=self._metadata)
            return [answer async for answer in answers]
        except CLIENT_ERRORS as error:
            raise error_from_client(error, self._address.name) from error

    async def close(self) -> None:
        """Close this loop's channel. Only its own loop can close a channel; others are garbage-collected."""
        current_loop = None
        with contextlib.suppress(RuntimeError):
            current_loop = asyncio.get_running_loop()
        own = None if current_loop is None else self._apis.pop(current_loop, None)
        self.reset()
        if own is not None:
            await own.transport.close()


def _connect(address: FirestoreAddress) -> Any:
    from google.cloud.firestore_v1.services.firestore import FirestoreAsyncClient
    from google.cloud.firestore_v1.services.firestore.transports import FirestoreGrpcAsyncIOTransport

    if address.emulator:
        import grpc.aio

        channel = grpc.aio.insecure_channel(address.emulator, options=CHANNEL_OPTIONS)
    else:
        channel = FirestoreGrpcAsyncIOTransport.create_channel(
            target(address), credentials=credentials(address), options=CHANNEL_OPTIONS
        )
    return FirestoreAsyncClient(transport=FirestoreGrpcAsyncIOTransport(host=target(address), channel=channel))

"""How calls reach Firestore from event loops."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from asyncio import AbstractEventLoop
from typing import Any

from .address import FirestoreAddress
from .transport import OPTIONS, TROUBLE, credentials, meaning, metadata, target, wires


class FirestoreAsyncTransport:
    """On event loops: a channel for each, as several may use one store, one after the other or each in its thread."""

    def __init__(self, place: FirestoreAddress) -> None:
        self._place = place
        self._details = metadata(place)
        self.reset()
        wires.add(self)

    def reset(self) -> None:
        self._apis: weakref.WeakKeyDictionary[AbstractEventLoop, Any] = weakref.WeakKeyDictionary()

    def held(self) -> object:
        return list(self._apis.items())

    def _client(self) -> Any:
        loop = asyncio.get_running_loop()
        api = self._apis.get(loop)
        if api is None:
            api = self._apis[loop] = _looping(self._place)
        return api

    async def one(self, method: str, request: Any, seconds: float) -> Any:
        try:
            call = getattr(self._client(), method)
            return await call(request=request, retry=None, timeout=seconds, metadata=self._details)
        except TROUBLE as error:
            raise meaning(error, self._place.name) from error

    async def many(self, method: str, request: Any, seconds: float) -> list[Any]:
        try:
            call = getattr(self._client(), method)
            answers = await call(request=request, retry=None, timeout=seconds, metadata=self._details)
            return [answer async for answer in answers]
        except TROUBLE as error:
            raise meaning(error, self._place.name) from error

    async def close(self) -> None:
        """Channels of other loops are left to the collector: only their own loop could close them."""
        here = None
        with contextlib.suppress(RuntimeError):
            here = asyncio.get_running_loop()
        own = None if here is None else self._apis.pop(here, None)
        self.reset()
        if own is not None:
            await own.transport.close()


def _looping(place: FirestoreAddress) -> Any:
    from google.cloud.firestore_v1.services.firestore import FirestoreAsyncClient
    from google.cloud.firestore_v1.services.firestore.transports import FirestoreGrpcAsyncIOTransport

    if place.emulator:
        import grpc.aio

        channel = grpc.aio.insecure_channel(place.emulator, options=OPTIONS)
    else:
        channel = FirestoreGrpcAsyncIOTransport.create_channel(
            target(place), credentials=credentials(place), options=OPTIONS
        )
    return FirestoreAsyncClient(transport=FirestoreGrpcAsyncIOTransport(host=target(place), channel=channel))

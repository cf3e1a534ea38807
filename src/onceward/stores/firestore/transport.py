"""How calls reach Firestore: by the official clients' own channels, each call with a deadline.

The clients repeat nothing by themselves here: whether a lost answer may be asked for again is ours to say.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any, Final, Protocol

from google.api_core import exceptions
from google.auth import exceptions as auth

from onceward.errors import StoreNotSetUp, StoreUnavailable

from .address import FirestoreAddress
from .errors import FirestoreRefused

OPTIONS: Final = (
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_reconnect_backoff_ms", 1_000),  # else a server that is back is refused for up to two minutes
)
CREDENTIALS: Final = "gcloud auth application-default login, or say GOOGLE_APPLICATION_CREDENTIALS=/path/to/key.json"


class FirestoreTransport(Protocol):
    """Calls of one store."""

    async def one(self, method: str, request: Any, seconds: float) -> Any:
        """The answer."""
        ...

    async def many(self, method: str, request: Any, seconds: float) -> list[Any]:
        """The answers of a call that has several."""
        ...

    async def close(self) -> None: ...


class FirestoreThreadTransport:
    """In threads: one channel for all of them."""

    def __init__(self, place: FirestoreAddress) -> None:
        self._place = place
        self._details = metadata(place)
        self.reset()
        wires.add(self)

    def reset(self) -> None:
        """Also in the child of a fork: the parent's channel is of no use there."""
        self._api: Any = None
        self._lock = threading.RLock()  # a signal handler may call while its thread connects

    def held(self) -> object:
        return self._api

    def _client(self) -> Any:
        with self._lock:
            if self._api is None:
                self._api = _blocking(self._place)
            return self._api

    async def one(self, method: str, request: Any, seconds: float) -> Any:
        try:
            call = getattr(self._client(), method)
            return call(request=request, retry=None, timeout=seconds, metadata=self._details)
        except TROUBLE as error:
            raise meaning(error, self._place.name) from error

    async def many(self, method: str, request: Any, seconds: float) -> list[Any]:
        try:
            call = getattr(self._client(), method)
            return list(call(request=request, retry=None, timeout=seconds, metadata=self._details))
        except TROUBLE as error:
            raise meaning(error, self._place.name) from error

    async def close(self) -> None:
        with self._lock:
            api, self._api = self._api, None
        if api is not None:
            api.transport.close()


def metadata(place: FirestoreAddress) -> list[tuple[str, str]]:
    """Which database a call is about, as the clients say it; the emulator lets everybody pass who owns it."""
    details = [("google-cloud-resource-prefix", place.root)]
    return [*details, ("authorization", "Bearer owner")] if place.emulator else details


def _blocking(place: FirestoreAddress) -> Any:
    from google.cloud.firestore_v1.services.firestore import FirestoreClient
    from google.cloud.firestore_v1.services.firestore.transports import FirestoreGrpcTransport

    if place.emulator:
        import grpc

        channel = grpc.insecure_channel(place.emulator, options=OPTIONS)
    else:
        channel = FirestoreGrpcTransport.create_channel(target(place), credentials=credentials(place), options=OPTIONS)
    return FirestoreClient(transport=FirestoreGrpcTransport(host=target(place), channel=channel))


def target(place: FirestoreAddress) -> str:
    return place.emulator or place.endpoint or "firestore.googleapis.com"


def credentials(place: FirestoreAddress) -> Any:
    """Those of the user's client, or what Google's libraries find by themselves."""
    if place.credentials is not None:
        return place.credentials
    import google.auth

    found, _ = google.auth.default(scopes=["https://www.googleapis.com/auth/datastore"])
    return found


TROUBLE: Final = (exceptions.GoogleAPICallError, exceptions.RetryError, auth.GoogleAuthError)


def meaning(error: Exception, name: str) -> Exception:
    if isinstance(error, auth.GoogleAuthError):
        if isinstance(error, auth.DefaultCredentialsError):
            return StoreNotSetUp(f"{name}: there are no credentials ({error})", hint=CREDENTIALS)
        return StoreUnavailable(f"{name}: the credentials could not be refreshed ({error})")
    code = getattr(error, "grpc_status_code", None)
    return FirestoreRefused("UNKNOWN" if code is None else code.name, str(getattr(error, "message", error)))


class Resets(Protocol):
    """A wire that begins anew in the child of a fork."""

    def held(self) -> object:
        """What it has open."""
        ...

    def reset(self) -> None: ...


wires: weakref.WeakSet[Resets] = weakref.WeakSet()


def _reset_all() -> None:
    for wire in tuple(wires):
        _abandoned.append(wire.held())
        wire.reset()


_abandoned: list[object] = []
"""Channels of the parent: gRPC must not even let go of them in the child."""


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_reset_all)

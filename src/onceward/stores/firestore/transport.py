"""Send calls to Firestore through the official client's channels, each call with a timeout.

The client does not retry here: Onceward decides whether a call with a lost reply may be repeated.
"""

from __future__ import annotations

import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from google.api_core import exceptions
from google.auth import exceptions as auth

from onceward.errors import StoreNotSetUp, StoreUnavailable
from onceward.protocol.fork import call_in_forked_child

from .address import FirestoreAddress
from .errors import FirestoreError

CHANNEL_OPTIONS: Final = (
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_reconnect_backoff_ms", 1_000),  # by default, up to two minutes after a restart
)
CREDENTIALS_HINT: Final = (
    "run gcloud auth application-default login, or set GOOGLE_APPLICATION_CREDENTIALS=/path/to/key.json"
)


class FirestoreTransport(ABC):
    """Sends the calls of one store."""

    def __init__(self, address: FirestoreAddress) -> None:
        self._address = address
        self._metadata = [("google-cloud-resource-prefix", address.root)]
        if address.emulator:
            self._metadata.append(("authorization", "Bearer owner"))  # which the emulator accepts as credentials
        self.reset()
        _transports.add(self)

    @abstractmethod
    def reset(self) -> None:
        """Forget the channels. Also called in a forked child, where the parent's channels are unusable."""

    @abstractmethod
    def open_channels(self) -> object:
        """Return the open channels."""

    @abstractmethod
    def _client(self) -> Any:
        """Return a connected client."""

    @abstractmethod
    async def call(self, method: str, request: Any, timeout: float) -> Any:
        """Call a method and return its reply."""

    @abstractmethod
    async def call_stream(self, method: str, request: Any, timeout: float) -> list[Any]:
        """Call a streaming method and return all of its replies."""

    @abstractmethod
    async def close(self) -> None: ...

    @contextmanager
    def _method(self, name: str) -> Iterator[Any]:
        """Yield a method of the client, which takes a request and a timeout. Translate its errors."""
        try:
            yield partial(getattr(self._client(), name), retry=None, metadata=self._metadata)
        except CLIENT_ERRORS as error:
            raise _error_from_client(error, self._address.name) from error

    def _connect(self, client: Any, transport: Any, insecure_channel: Callable[..., Any]) -> Any:
        """Return a client: an object of one of Google's classes, with its transport."""
        address = self._address
        target = address.emulator or address.endpoint or "firestore.googleapis.com"
        if address.emulator:
            channel = insecure_channel(target, options=CHANNEL_OPTIONS)
        else:
            channel = transport.create_channel(target, credentials=_credentials(address), options=CHANNEL_OPTIONS)
        return client(transport=transport(host=target, channel=channel))


class FirestoreThreadTransport(FirestoreTransport):
    """Sends calls from threads, which share one channel."""

    def reset(self) -> None:
        self._api: Any = None
        self._lock = threading.RLock()  # a signal handler may call while its thread connects

    def open_channels(self) -> object:
        return self._api

    def _client(self) -> Any:
        with self._lock:
            if self._api is None:
                import grpc
                from google.cloud.firestore_v1.services.firestore import FirestoreClient
                from google.cloud.firestore_v1.services.firestore.transports import FirestoreGrpcTransport

                self._api = self._connect(FirestoreClient, FirestoreGrpcTransport, grpc.insecure_channel)
            return self._api

    async def call(self, method: str, request: Any, timeout: float) -> Any:
        with self._method(method) as send:
            return send(request=request, timeout=timeout)

    async def call_stream(self, method: str, request: Any, timeout: float) -> list[Any]:
        with self._method(method) as send:
            return list(send(request=request, timeout=timeout))

    async def close(self) -> None:
        with self._lock:
            api, self._api = self._api, None
        if api is not None:
            api.transport.close()


def _credentials(address: FirestoreAddress) -> Any:
    """Return the credentials of the user's client, or Google's application default credentials."""
    if address.credentials is not None:
        return address.credentials
    import google.auth

    found, _ = google.auth.default(scopes=["https://www.googleapis.com/auth/datastore"])
    return found


CLIENT_ERRORS: Final = (exceptions.GoogleAPICallError, exceptions.RetryError, auth.GoogleAuthError)


def _error_from_client(error: Exception, name: str) -> Exception:
    if isinstance(error, auth.GoogleAuthError):
        if isinstance(error, auth.DefaultCredentialsError):
            return StoreNotSetUp(f"{name}: no credentials were found ({error})", hint=CREDENTIALS_HINT)
        return StoreUnavailable(f"{name}: the credentials could not be refreshed ({error})")
    code = getattr(error, "grpc_status_code", None)
    return FirestoreError("UNKNOWN" if code is None else code.name, str(getattr(error, "message", error)))


_transports: weakref.WeakSet[FirestoreTransport] = weakref.WeakSet()


def _reset_all() -> None:
    for transport in tuple(_transports):
        _abandoned.append(transport.open_channels())
        transport.reset()


_abandoned: list[object] = []
"""Channels of the parent: the child must not even free them."""


call_in_forked_child(_reset_all)

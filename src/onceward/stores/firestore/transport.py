"""Send calls to Firestore through the official client's channels, each call with a timeout.

The client does not retry here: Onceward decides whether a call with a lost reply may be repeated.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any, Final, Protocol

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


class FirestoreTransport(Protocol):
    """Sends the calls of one store."""

    async def call(self, method: str, request: Any, timeout: float) -> Any:
        """Call a method and return its reply."""
        ...

    async def call_stream(self, method: str, request: Any, timeout: float) -> list[Any]:
        """Call a streaming method and return all of its replies."""
        ...

    async def close(self) -> None: ...


class FirestoreThreadTransport:
    """Sends calls from threads, which share one channel."""

    def __init__(self, address: FirestoreAddress) -> None:
        self._address = address
        self._metadata = call_metadata(address)
        self.reset()
        transports.add(self)

    def reset(self) -> None:
        """Forget the channel. Also called in a forked child, where the parent's channel is unusable."""
        self._api: Any = None
        self._lock = threading.RLock()  # a signal handler may call while its thread connects

    def open_channels(self) -> object:
        return self._api

    def _client(self) -> Any:
        with self._lock:
            if self._api is None:
                self._api = _connect(self._address)
            return self._api

    async def call(self, method: str, request: Any, timeout: float) -> Any:
        try:
            method_call = getattr(self._client(), method)
            return method_call(request=request, retry=None, timeout=timeout, metadata=self._metadata)
        except CLIENT_ERRORS as error:
            raise error_from_client(error, self._address.name) from error

    async def call_stream(self, method: str, request: Any, timeout: float) -> list[Any]:
        try:
            method_call = getattr(self._client(), method)
            return list(method_call(request=request, retry=None, timeout=timeout, metadata=self._metadata))
        except CLIENT_ERRORS as error:
            raise error_from_client(error, self._address.name) from error

    async def close(self) -> None:
        with self._lock:
            api, self._api = self._api, None
        if api is not None:
            api.transport.close()


def call_metadata(address: FirestoreAddress) -> list[tuple[str, str]]:
    """Return the metadata that names the database of a call. The emulator accepts "owner" as credentials."""
    details = [("google-cloud-resource-prefix", address.root)]
    return [*details, ("authorization", "Bearer owner")] if address.emulator else details


def _connect(address: FirestoreAddress) -> Any:
    from google.cloud.firestore_v1.services.firestore import FirestoreClient
    from google.cloud.firestore_v1.services.firestore.transports import FirestoreGrpcTransport

    if address.emulator:
        import grpc

        channel = grpc.insecure_channel(address.emulator, options=CHANNEL_OPTIONS)
    else:
        channel = FirestoreGrpcTransport.create_channel(
            target(address), credentials=credentials(address), options=CHANNEL_OPTIONS
        )
    return FirestoreClient(transport=FirestoreGrpcTransport(host=target(address), channel=channel))


def target(address: FirestoreAddress) -> str:
    return address.emulator or address.endpoint or "firestore.googleapis.com"


def credentials(address: FirestoreAddress) -> Any:
    """Return the credentials of the user's client, or Google's application default credentials."""
    if address.credentials is not None:
        return address.credentials
    import google.auth

    found, _ = google.auth.default(scopes=["https://www.googleapis.com/auth/datastore"])
    return found


CLIENT_ERRORS: Final = (exceptions.GoogleAPICallError, exceptions.RetryError, auth.GoogleAuthError)


def error_from_client(error: Exception, name: str) -> Exception:
    if isinstance(error, auth.GoogleAuthError):
        if isinstance(error, auth.DefaultCredentialsError):
            return StoreNotSetUp(f"{name}: no credentials were found ({error})", hint=CREDENTIALS_HINT)
        return StoreUnavailable(f"{name}: the credentials could not be refreshed ({error})")
    code = getattr(error, "grpc_status_code", None)
    return FirestoreError("UNKNOWN" if code is None else code.name, str(getattr(error, "message", error)))


class ForkAware(Protocol):
    """A transport that is reset in a forked child."""

    def open_channels(self) -> object:
        """Return the open channels."""
        ...

    def reset(self) -> None: ...


transports: weakref.WeakSet[ForkAware] = weakref.WeakSet()


def _reset_all() -> None:
    for transport in tuple(transports):
        _abandoned.append(transport.open_channels())
        transport.reset()


_abandoned: list[object] = []
"""Channels of the parent: the child must not even free them."""


call_in_forked_child(_reset_all)

"""S3 and GCS as storage backends, through obstore."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from onceward.errors import InvalidKey, OncewardError, StoreBroken, StoreNotSetUp, StoreUnavailable
from onceward.protocol.extras import import_extra

from .backend import PIECE, STAGING, StoredObject

if TYPE_CHECKING:
    from obstore.store import GCSStore, S3Store

MAX_SINGLE_UPLOAD: Final = 8 * PIECE
"""Content up to this size is uploaded in one request. Multipart uploads cannot be conditional, so larger content is
uploaded under a staging name and then copied to its name, which can be conditional."""

MAX_PARTS_IN_FLIGHT: Final = 2
"""Parts in flight; this many parts are in memory."""

RETRIES: Final = 3
"""Retries by the driver. A create that is retried after a lost reply finds its own object, known by its content."""


_driver_process: list[int] = []
"""The process that first used the driver. The driver's threads do not survive a fork, and a child would hang."""


class Bucket:
    """The objects below a prefix of a bucket."""

    def __init__(self, name: str, store: S3Store | GCSStore) -> None:
        self.name = name
        self._store = store
        self._obstore = _driver()

    def stage(self, pieces: Iterator[bytes]) -> bytes | str:
        """Return the content itself if it is small, else the name of the staged object."""
        head = bytearray()
        for piece in pieces:
            head += piece
            if len(head) > MAX_SINGLE_UPLOAD:
                return self._upload(chain((bytes(head),), pieces))
        return bytes(head)

    def _upload(self, pieces: Iterator[bytes]) -> str:
        path = f"{STAGING}/{uuid.uuid4().hex}"
        source = _Source(pieces)
        try:
            with self._translating(path):
                self._obstore.put(
                    self._store,
                    path,
                    source,
                    use_multipart=True,
                    chunk_size=MAX_SINGLE_UPLOAD,
                    max_concurrency=MAX_PARTS_IN_FLIGHT,
                )
        except BaseException:
            self.unstage(path)
            if source.error is not None:  # the source failed, not the bucket
                raise source.error from None
            raise
        return path

    def create(self, name: str, staged: bytes | str) -> bool:
        with self._translating(name):
            try:
                if isinstance(staged, str):
                    self._obstore.copy(self._store, staged, name, overwrite=False)
                else:
                    self._obstore.put(self._store, name, staged, mode="create", use_multipart=False)
            except self._obstore.exceptions.AlreadyExistsError:
                return False
        return True

    def unstage(self, staged: bytes | str) -> None:
        if isinstance(staged, str):
            with suppress(Exception):
                self._obstore.delete(self._store, staged)

    def find(self, name: str) -> StoredObject | None:
        with self._translating(name):
            try:
                got = self._obstore.get(self._store, name)
            except FileNotFoundError:
                return None
            meta = got.meta
            return StoredObject(_version(meta), meta["size"], self._pieces(name, got.stream(min_chunk_size=PIECE)))

    def _pieces(self, name: str, stream: Any) -> Iterator[bytes]:
        with self._translating(name):
            for piece in stream:
                yield bytes(piece)

    def version(self, name: str) -> str | None:
        with self._translating(name):
            try:
                return _version(self._obstore.head(self._store, name))
            except FileNotFoundError:
                return None

    def delete(self, name: str) -> None:
        with self._translating(name), suppress(FileNotFoundError):
            self._obstore.delete(self._store, name)

    def names(self, prefix: str) -> Iterator[str]:
        folder = prefix.rpartition("/")[0]
        if not {".", ".."}.isdisjoint(folder.split("/")):
            return  # no object can have such a name, and the driver would raise
        for meta in self._list(folder):
            name = meta["path"]
            if name.startswith(prefix) and not name.startswith(STAGING):
                yield name

    def purge(self, before: datetime) -> int:
        old = [meta["path"] for meta in self._list(STAGING) if meta["last_modified"] < before]
        for path in old:
            self.delete(path)
        return len(old)

    def _list(self, folder: str) -> Iterator[Any]:
        with self._translating(folder):
            for page in self._obstore.list(self._store, prefix=folder or None):
                yield from page

    @contextmanager
    def _translating(self, name: str) -> Iterator[None]:
        errors = self._obstore.exceptions
        _refuse_forked(self.name)
        try:
            yield
        except OncewardError:
            raise
        except errors.InvalidPathError as error:
            raise InvalidKey(f"{self.name}: {_first_line(error)}", key=name) from error
        except (errors.PermissionDeniedError, errors.UnauthenticatedError, FileNotFoundError) as error:
            raise StoreNotSetUp(
                f"{self.name}: the bucket does not exist, or access is denied ({_first_line(error)})",
                key=name,
                hint="create the bucket; allow getting, putting, listing and deleting objects below the prefix",
            ) from error
        except errors.NotSupportedError as error:
            raise StoreBroken(f"{self.name}: {_first_line(error)}", key=name) from error
        except (errors.BaseError, OSError) as error:
            raise StoreUnavailable(
                f"{self.name}: {_first_line(error)}",
                key=name,
                hint="the call may be repeated: nothing is ever overwritten",
            ) from error


class _Source(Iterator[bytes]):
    """Remembers the exception of the source, which the driver would replace by its own."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self.error: Exception | None = None

    def __next__(self) -> bytes:
        try:
            return next(self._pieces)
        except StopIteration:
            raise
        except Exception as error:
            self.error = error
            raise


def open_bucket(
    scheme: str, bucket: str, prefix: str, *, endpoint: str | None, timeout: float, settings: dict[str, Any]
) -> Bucket:
    store = _driver().store
    client: dict[str, Any] = {
        "timeout": timedelta(seconds=timeout),
        "connect_timeout": timedelta(seconds=min(timeout, 5)),
    }
    if endpoint is not None and endpoint.startswith("http://"):
        client["allow_http"] = True
    retry = {"max_retries": RETRIES, "retry_timeout": timedelta(seconds=timeout)}
    client |= settings.pop("client_options", {})
    options = {"prefix": prefix or None, "client_options": client, "retry_config": retry, **settings}
    name = f"{scheme}://{bucket}/{prefix}".rstrip("/")
    if scheme == "gs":
        return Bucket(name, store.GCSStore(bucket, **options))
    if endpoint is not None:
        options["endpoint"] = endpoint
    return Bucket(name, store.S3Store(bucket, copy_if_not_exists="multipart", **options))


def _refuse_forked(name: str) -> None:
    if not _driver_process:
        _driver_process.append(os.getpid())
    elif _driver_process[0] != os.getpid():
        raise StoreBroken(
            f"{name}: this process was forked from one that had already used object storage",
            hint="start it with spawn or forkserver, or fork before the first put",
        )


def _version(meta: Any) -> str:
    return f"{meta['e_tag']} {meta['version']} {meta['last_modified'].isoformat()}"


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0][:300]


def _driver() -> Any:
    return import_extra("obstore", "obstore is not installed", "install onceward[objects]")

"""S3 and GCS as the place, by obstore."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from onceward.errors import InvalidKey, MissingExtra, OncewardError, StoreBroken, StoreNotSetUp, StoreUnavailable

from .backend import PIECE, STAGING, There

if TYPE_CHECKING:
    from obstore.store import GCSStore, S3Store

IN_ONE: Final = 8 * PIECE
"""What is not larger goes up in one request. Multipart uploads know no condition: what is larger gets its name by a
copy inside of the storage, which does."""

AT_ONCE: Final = 2
"""Parts in flight; as many pieces are in memory."""

RETRIES: Final = 3
"""By the driver. A create that is repeated after a lost answer finds its own object, which is told by its content."""


_used_in: list[int] = []
"""The process that has used the driver first: its threads do not survive a fork, and a child would wait for them."""


class Bucket:
    """The objects below a prefix of a bucket."""

    def __init__(self, name: str, store: S3Store | GCSStore) -> None:
        self.name = name
        self._store = store
        self._obstore = _driver()

    def stage(self, pieces: Iterator[bytes]) -> bytes | str:
        """The content itself if it is small, else the name of an object of its own."""
        first = bytearray()
        for piece in pieces:
            first += piece
            if len(first) > IN_ONE:
                return self._upload(chain((bytes(first),), pieces))
        return bytes(first)

    def _upload(self, pieces: Iterator[bytes]) -> str:
        path = f"{STAGING}/{uuid.uuid4().hex}"
        source = _Source(pieces)
        try:
            with self._explained(path):
                self._obstore.put(
                    self._store, path, source, use_multipart=True, chunk_size=IN_ONE, max_concurrency=AT_ONCE
                )
        except BaseException:
            self.unstage(path)
            if source.error is not None:  # it is about the source, not about the bucket
                raise source.error from None
            raise
        return path

    def create(self, name: str, staged: bytes | str) -> bool:
        with self._explained(name):
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

    def find(self, name: str) -> There | None:
        with self._explained(name):
            try:
                got = self._obstore.get(self._store, name)
            except FileNotFoundError:
                return None
            meta = got.meta
            return There(_version(meta), meta["size"], self._pieces(name, got.stream(min_chunk_size=PIECE)))

    def _pieces(self, name: str, stream: Any) -> Iterator[bytes]:
        with self._explained(name):
            for piece in stream:
                yield bytes(piece)

    def version(self, name: str) -> str | None:
        with self._explained(name):
            try:
                return _version(self._obstore.head(self._store, name))
            except FileNotFoundError:
                return None

    def delete(self, name: str) -> None:
        with self._explained(name), suppress(FileNotFoundError):
            self._obstore.delete(self._store, name)

    def names(self, prefix: str) -> Iterator[str]:
        folder = prefix.rpartition("/")[0]
        if not {".", ".."}.isdisjoint(folder.split("/")):
            return  # no object has such a name, and the driver would raise
        for meta in self._listed(folder):
            name = meta["path"]
            if name.startswith(prefix) and not name.startswith(STAGING):
                yield name

    def purge(self, before: datetime) -> int:
        old = [meta["path"] for meta in self._listed(STAGING) if meta["last_modified"] < before]
        for path in old:
            self.delete(path)
        return len(old)

    def _listed(self, folder: str) -> Iterator[Any]:
        with self._explained(folder):
            for page in self._obstore.list(self._store, prefix=folder or None):
                yield from page

    @contextmanager
    def _explained(self, name: str) -> Iterator[None]:
        known = self._obstore.exceptions
        _refuse_forked(self.name)
        try:
            yield
        except OncewardError:
            raise
        except known.InvalidPathError as error:
            raise InvalidKey(f"{self.name}: {_first_line(error)}", key=name) from error
        except (known.PermissionDeniedError, known.UnauthenticatedError, FileNotFoundError) as error:
            raise StoreNotSetUp(
                f"{self.name}: no such bucket, or no rights there ({_first_line(error)})",
                key=name,
                hint="make the bucket; allow to get, put, list and delete objects below the prefix",
            ) from error
        except known.NotSupportedError as error:
            raise StoreBroken(f"{self.name}: {_first_line(error)}", key=name) from error
        except (known.BaseError, OSError) as error:
            raise StoreUnavailable(
                f"{self.name}: {_first_line(error)}", key=name, hint="it may be repeated: nothing is ever overwritten"
            ) from error


class _Source(Iterator[bytes]):
    """Keeps what reading raises: the driver would make an error of its own of it."""

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
    known = {"prefix": prefix or None, "client_options": client, "retry_config": retry, **settings}
    name = f"{scheme}://{bucket}/{prefix}".rstrip("/")
    if scheme == "gs":
        return Bucket(name, store.GCSStore(bucket, **known))
    if endpoint is not None:
        known["endpoint"] = endpoint
    return Bucket(name, store.S3Store(bucket, copy_if_not_exists="multipart", **known))


def _refuse_forked(name: str) -> None:
    if not _used_in:
        _used_in.append(os.getpid())
    elif _used_in[0] != os.getpid():
        raise StoreBroken(
            f"{name}: this process was forked from one that has used object storage already",
            hint="start it by spawn or forkserver, or fork before the first put",
        )


def _version(meta: Any) -> str:
    return f"{meta['e_tag']} {meta['version']} {meta['last_modified'].isoformat()}"


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0][:300]


def _driver() -> Any:
    try:
        import obstore
        import obstore.exceptions
        import obstore.store
    except ModuleNotFoundError as error:
        raise MissingExtra("obstore is not installed", hint="install onceward[objects]") from error
    return obstore

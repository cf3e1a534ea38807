"""A local folder as the place: no driver needed, and what is answered as created survives a power cut."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from io import FileIO
from pathlib import Path
from typing import Final

from onceward.errors import OncewardError, StoreBroken, StoreFull, StoreNotSetUp, StoreUnavailable

from .backend import PIECE, STAGING, There

_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)
_NO_LINKS: Final = (errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.EXDEV, errno.ENOSYS)


class Folder:
    """Written aside and synced, then linked to its name: a link either is there or not, and never replaces another."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.name = root.as_uri()
        self._staging = root / STAGING
        with self._explained():
            self._staging.mkdir(parents=True, exist_ok=True)

    def stage(self, pieces: Iterator[bytes]) -> Path:
        path = self._staging / uuid.uuid4().hex
        with self._explained():
            file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb", buffering=0)
        try:
            with file:
                for piece in pieces:  # what reading raises is not about this folder
                    self._write(file.fileno(), piece)
                with self._explained():
                    os.fsync(file.fileno())
        except BaseException:
            self.unstage(path)
            raise
        return path

    def _write(self, descriptor: int, piece: bytes) -> None:
        with self._explained():
            while piece:
                piece = piece[os.write(descriptor, piece) :]

    def create(self, name: str, staged: Path) -> bool:
        path = self.root / name
        with self._explained():
            self._make(path.parent)
            try:
                os.link(staged, path)
            except FileExistsError:
                _sync(path.parent)  # whoever linked it may have died before that; it may be told as `same`
                return False
            except OSError as error:
                if error.errno in _NO_LINKS:
                    raise StoreBroken(
                        f"{self.name}: this file system cannot link ({error})",
                        key=name,
                        hint="without hard links nothing can be created in one step: use another file system",
                    ) from error
                raise
            _sync(path.parent)
        return True

    def _make(self, folder: Path) -> None:
        """Each new folder is as durable as what will be in it."""
        if folder.is_dir():
            return
        self._make(folder.parent)
        with suppress(FileExistsError):  # somebody else has just made it; if it is a file, the link will say so
            folder.mkdir()
        _sync(folder.parent)

    def unstage(self, staged: Path) -> None:
        with suppress(OSError):
            staged.unlink(missing_ok=True)

    def find(self, name: str) -> There | None:
        with self._explained():
            try:
                file = (self.root / name).open("rb", buffering=0)
            except (FileNotFoundError, NotADirectoryError):
                if (self.root / name).is_symlink():
                    raise StoreBroken(
                        f"{self.name}: a link that leads nowhere", key=name, hint="remove it, or choose another name"
                    ) from None
                return None
            status = os.fstat(file.fileno())
        return There(_version(status), status.st_size, self._pieces(file), file)

    def _pieces(self, file: FileIO) -> Iterator[bytes]:
        with self._explained():
            while piece := file.read(PIECE):
                yield piece

    def version(self, name: str) -> str | None:
        with self._explained():
            try:
                return _version((self.root / name).stat())
            except (FileNotFoundError, NotADirectoryError):
                return None

    def delete(self, name: str) -> None:
        path = self.root / name
        with self._explained():
            path.unlink(missing_ok=True)
            _sync(path.parent)

    def names(self, prefix: str) -> Iterator[str]:
        with self._explained():
            found = [path.relative_to(self.root).as_posix() for path in self.root.rglob("*") if path.is_file()]
        return iter(sorted(name for name in found if name.startswith(prefix) and not name.startswith(STAGING)))

    def purge(self, before: datetime) -> int:
        removed = 0
        with self._explained():
            for path in self._staging.iterdir():
                with suppress(FileNotFoundError):  # it has just become an object, or somebody else purges
                    if path.stat().st_mtime < before.timestamp():
                        path.unlink()
                        removed += 1
        return removed

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise _explained(error, self.name) from error


def _sync(folder: Path) -> None:
    """A name is safe when its folder is."""
    if os.name == "nt":  # where folders cannot be opened, and their entries are written through
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _version(status: os.stat_result) -> str:
    return f"{status.st_ino}-{status.st_mtime_ns}-{status.st_size}"


def _explained(error: OSError, name: str) -> OncewardError:
    if error.errno in _NO_ROOM:
        return StoreFull(f"{name}: no room ({error})", hint="make room; the put may be repeated")
    if isinstance(error, PermissionError) or error.errno == errno.EROFS:
        return StoreNotSetUp(f"{name}: not allowed ({error})", hint="give this user the right to write there")
    if isinstance(error, NotADirectoryError | IsADirectoryError | FileExistsError):
        return StoreBroken(f"{name}: a file and a folder of one name ({error})", hint="choose another name")
    return StoreUnavailable(f"{name}: {error}", hint="it may be repeated: nothing is ever overwritten")

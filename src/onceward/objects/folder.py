"""A local folder as storage backend. It needs no driver; a created object survives a power cut."""

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

from .backend import PIECE, STAGING, StoredObject

_DISK_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700
"""Objects and their folders belong to the user that created them."""

_NO_FOLLOW: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_NO_LINKS: Final = (errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.EXDEV, errno.ENOSYS)


class Folder:
    """Writes and syncs a staged file, then links it to its name. Creating a link is atomic and never overwrites."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.name = root.as_uri()
        self._staging = root / STAGING
        with self._translating():
            self._make_folder(root)  # not with parents=True, which creates the others with the mode of the umask
            self._staging.mkdir(FOLDER_MODE, exist_ok=True)

    def stage(self, pieces: Iterator[bytes]) -> Path:
        path = self._staging / uuid.uuid4().hex
        with self._translating():
            file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE), "wb", buffering=0)
        try:
            with file:
                for piece in pieces:  # exceptions of the source are not ours to translate
                    self._write(file.fileno(), piece)
                with self._translating():
                    os.fsync(file.fileno())
        except BaseException:
            self.unstage(path)
            raise
        return path

    def _write(self, descriptor: int, piece: bytes) -> None:
        with self._translating():
            while piece:
                piece = piece[os.write(descriptor, piece) :]

    def create(self, name: str, staged: Path) -> bool:
        path = self.root / name
        with self._translating():
            self._refuse_links(name)
            self._make_folder(path.parent)
            try:
                os.link(staged, path)
            except FileExistsError:
                _sync(path.parent)  # the process that linked it may have died before its sync; we may return `same`
                return False
            except OSError as error:
                if error.errno in _NO_LINKS:
                    raise StoreBroken(
                        f"{self.name}: this file system does not support hard links ({error})",
                        key=name,
                        hint="objects are created atomically by hard links: use another file system",
                    ) from error
                raise
            _sync(path.parent)
        return True

    def _make_folder(self, folder: Path) -> None:
        """Create the folder and its parents, and sync each: they must be as durable as their content."""
        if folder.is_dir():
            return
        self._make_folder(folder.parent)
        with suppress(FileExistsError):  # another process created it; if it is a file, the link fails below
            folder.mkdir(FOLDER_MODE)
        _sync(folder.parent)

    def _refuse_links(self, name: str) -> None:
        """Raise if the name or one of its folders is a symbolic link, which may lead outside the root."""
        path = self.root
        for part in name.split("/"):
            path /= part
            if path.is_symlink():
                link = path.relative_to(self.root).as_posix()
                raise StoreBroken(
                    f"{self.name}: {link} is a symbolic link, and links are not followed",
                    key=name,
                    hint="remove the link, or choose another name",
                )

    def unstage(self, staged: Path) -> None:
        with suppress(OSError):
            staged.unlink(missing_ok=True)

    def find(self, name: str) -> StoredObject | None:
        with self._translating():
            self._refuse_links(name)
            try:
                file = os.fdopen(os.open(self.root / name, os.O_RDONLY | _NO_FOLLOW), "rb", buffering=0)
            except (FileNotFoundError, NotADirectoryError):
                return None
            status = os.fstat(file.fileno())
        return StoredObject(_version(status), status.st_size, self._pieces(file), file)

    def _pieces(self, file: FileIO) -> Iterator[bytes]:
        with self._translating():
            while piece := file.read(PIECE):
                yield piece

    def version(self, name: str) -> str | None:
        with self._translating():
            self._refuse_links(name)
            try:
                return _version((self.root / name).lstat())
            except (FileNotFoundError, NotADirectoryError):
                return None

    def delete(self, name: str) -> None:
        path = self.root / name
        with self._translating():
            self._refuse_links(name)
            path.unlink(missing_ok=True)
            _sync(path.parent)

    def names(self, prefix: str) -> Iterator[str]:
        with self._translating():
            files = (
                Path(folder, name) for folder, _, names in os.walk(self.root) for name in names
            )  # follows no links
            found = [
                file.relative_to(self.root).as_posix() for file in files if file.is_file() and not file.is_symlink()
            ]
        return iter(sorted(name for name in found if name.startswith(prefix) and not name.startswith(STAGING)))

    def purge(self, before: datetime) -> int:
        removed = 0
        with self._translating():
            for path in self._staging.iterdir():
                with suppress(FileNotFoundError):  # it just became an object, or another process purges
                    if path.stat().st_mtime < before.timestamp():
                        path.unlink()
                        removed += 1
        return removed

    @contextmanager
    def _translating(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise _translate(error, self.name) from error


def _sync(folder: Path) -> None:
    """Sync the folder: a new name is durable only then."""
    if os.name == "nt":  # folders cannot be opened there, and their entries are written through
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _version(status: os.stat_result) -> str:
    return f"{status.st_ino}-{status.st_mtime_ns}-{status.st_size}"


def _translate(error: OSError, name: str) -> OncewardError:
    if error.errno in _DISK_FULL:
        return StoreFull(f"{name}: the disk is full ({error})", hint="free disk space; the put may be repeated")
    if isinstance(error, PermissionError) or error.errno == errno.EROFS:
        return StoreNotSetUp(f"{name}: permission denied ({error})", hint="allow this user to write there")
    if isinstance(error, NotADirectoryError | IsADirectoryError | FileExistsError):
        return StoreBroken(f"{name}: a file and a folder have the same name ({error})", hint="choose another name")
    return StoreUnavailable(f"{name}: {error}", hint="the call may be repeated: nothing is ever overwritten")

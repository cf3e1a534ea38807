"""Object names: check that a name works on every backend, and derive one from any text. No I/O."""

from __future__ import annotations

import re
from typing import Final

from onceward.errors import InvalidKey, MissingKey

RESERVED_PREFIX: Final = ".onceward"
MAX_PART_BYTES: Final = 255
"""In bytes: the limit of file systems."""

MAX_NAME_BYTES: Final = 900
"""In bytes: S3 and GCS allow 1,024, including the prefix."""

SAFE_LENGTH: Final = 150
HASH_DIGITS: Final = 12
"""Hexadecimal digits of a content hash: enough to distinguish documents of the same name."""

_FORBIDDEN: Final = re.compile("[\x00-\x1f\x7f\\\\\ud800-\udfff]")
_REPLACED: Final = re.compile('[\x00-\x1f\x7f/\\\\<>:"|?*#%\ud800-\udfff]+')
_RESERVED: Final = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
_EXTENSION: Final = re.compile(r"\.[A-Za-z0-9]{1,8}")


def checked_name(name: str) -> str:
    """Return the name if it is a valid name of an object below the prefix."""
    if not isinstance(name, str) or not name:
        raise MissingKey("an object needs a name", hint="use the same name on every attempt")
    parts = name.split("/")
    too_long = len(name.encode("utf-8", "replace")) > MAX_NAME_BYTES or any(
        len(part.encode("utf-8", "replace")) > MAX_PART_BYTES for part in parts
    )
    if too_long:
        raise InvalidKey(
            f"a name of {len(name)} characters is too long",
            hint=f"at most {MAX_NAME_BYTES} bytes, {MAX_PART_BYTES} between two slashes; safe_name() shortens it",
        )
    invalid_part = any(part in ("", ".", "..") or part.lower().startswith(RESERVED_PREFIX) for part in parts)
    if invalid_part or _FORBIDDEN.search(name):
        raise InvalidKey(
            f"{name!r} cannot be the name of an object",
            hint="no empty part, no . or .., no control character, no backslash; safe_name() makes any text a name",
        )
    return name


def safe_name(text: str, *, longest: int = SAFE_LENGTH) -> str:
    """Return one part of a name for any `text`. It cannot leave its folder, and every file system accepts it.

    A longer name is cut to `longest` bytes; its extension stays.

    Two texts may give the same name. Objects are never overwritten, so `if_other=` decides about the second one.
    """
    name = _REPLACED.sub("_", text).strip(" .") or "_"
    if _RESERVED.fullmatch(name):
        name = f"_{name}"
    return _shorten(name, min(longest, MAX_PART_BYTES))


def name_with_hash(name: str, content: str) -> str:
    """Return the name with digits of the content hash before the extension: `a.pdf` becomes `a-315d4297bc01.pdf`."""
    folder, slash, last = name.rpartition("/")
    suffix = f"-{content.rpartition(':')[2][:HASH_DIGITS]}"
    stem, extension = _split_extension(last)
    room = MAX_PART_BYTES - len(suffix) - len(extension)
    return f"{folder}{slash}{_cut_bytes(stem, room)}{suffix}{extension}"


def _shorten(name: str, longest: int) -> str:
    stem, extension = _split_extension(name)
    return f"{_cut_bytes(stem, longest - len(extension)).rstrip(' .')}{extension}"


def _split_extension(name: str) -> tuple[str, str]:
    stem, dot, extension = name.rpartition(".")
    return (stem, dot + extension) if stem and _EXTENSION.fullmatch(dot + extension) else (name, "")


def _cut_bytes(text: str, size: int) -> str:
    """Cut the text to at most `size` bytes, without splitting a character."""
    return text.encode()[:size].decode(errors="ignore")

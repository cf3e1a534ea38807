"""Names of objects: which ones are possible everywhere, and how any text becomes one. No I/O."""

from __future__ import annotations

import re
from typing import Final

from onceward.errors import InvalidKey, MissingKey

OURS: Final = ".onceward"
LONGEST_PART: Final = 255
"""Bytes: what file systems allow."""

LONGEST: Final = 900
"""Bytes: S3 and GCS allow 1,024, with the prefix."""

SAFE: Final = 150
MARK: Final = 12
"""Hexadecimal digits of a content hash: enough to tell a name's documents apart."""

_FORBIDDEN: Final = re.compile("[\x00-\x1f\x7f\\\\\ud800-\udfff]")
_REPLACED: Final = re.compile('[\x00-\x1f\x7f/\\\\<>:"|?*#%\ud800-\udfff]+')
_RESERVED: Final = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
_ENDING: Final = re.compile(r"\.[A-Za-z0-9]{1,8}")


def checked_name(name: str) -> str:
    """The name itself, if it names an object below the prefix and nothing else."""
    if not isinstance(name, str) or not name:
        raise MissingKey("an object needs a name", hint="the same on every attempt")
    parts = name.split("/")
    too_long = len(name.encode("utf-8", "replace")) > LONGEST or any(
        len(part.encode("utf-8", "replace")) > LONGEST_PART for part in parts
    )
    if too_long:
        raise InvalidKey(
            f"a name of {len(name)} characters is too long",
            hint=f"at most {LONGEST} bytes, {LONGEST_PART} between two slashes; safe_name() cuts",
        )
    wrong = any(part in ("", ".", "..") or part.lower().startswith(OURS) for part in parts)
    if wrong or _FORBIDDEN.search(name):
        raise InvalidKey(
            f"{name!r} cannot be the name of an object",
            hint="no empty part, no . or .., no control character, no backslash; safe_name() makes one of any text",
        )
    return name


def safe_name(text: str, *, longest: int = SAFE) -> str:
    """One part of a name, made of any text: it cannot leave its folder, and every file system takes it.

    Two texts may become one name; objects are never overwritten, so the second one is noticed (`if_other=`).
    """
    name = _REPLACED.sub("_", text).strip(" .") or "_"
    if _RESERVED.fullmatch(name):
        name = f"_{name}"
    return _cut(name, min(longest, LONGEST_PART))


def marked_name(name: str, content: str) -> str:
    """The name with the first digits of its content's hash, before the ending: `a.pdf` becomes `a-315d4297bc01.pdf`."""
    folder, slash, last = name.rpartition("/")
    mark = f"-{content.rpartition(':')[2][:MARK]}"
    stem, ending = _split(last)
    room = LONGEST_PART - len(mark) - len(ending)
    return f"{folder}{slash}{_within(stem, room)}{mark}{ending}"


def _cut(name: str, longest: int) -> str:
    stem, ending = _split(name)
    return f"{_within(stem, longest - len(ending)).rstrip(' .')}{ending}"


def _split(name: str) -> tuple[str, str]:
    stem, dot, ending = name.rpartition(".")
    return (stem, dot + ending) if stem and _ENDING.fullmatch(dot + ending) else (name, "")


def _within(text: str, size: int) -> str:
    """As many characters as fit into so many bytes."""
    return text.encode()[:size].decode(errors="ignore")

"""Parse SQLite URLs: `sqlite:///relative.db`, `sqlite:////absolute.db`, `sqlite://:memory:`."""

from __future__ import annotations

import os
from urllib.parse import parse_qsl, quote, unquote

from onceward.errors import ConfigurationError
from onceward.protocol.secrets import setting_name_without_secrets, url_without_secrets

from .connection import MEMORY

SCHEME = "sqlite://"
SETTINGS = ("synchronous",)
SYNCHRONOUS = ("FULL", "NORMAL", "EXTRA")
EXAMPLES = "write sqlite:///relative.db, sqlite:////absolute/path.db or sqlite://:memory:"


def parse(url: str) -> tuple[str, dict[str, str]]:
    """Return the path and the settings. A `?` or `#` in the path is written %3F or %23."""
    if not url.lower().startswith(SCHEME):
        raise ConfigurationError(f"{url_without_secrets(url)!r} is not a SQLite URL", hint=EXAMPLES)
    location, _, query = url[len(SCHEME) :].partition("?")
    if "#" in location + query:
        raise ConfigurationError(f"{url_without_secrets(url)!r} has a fragment", hint="write a # in the path as %23")
    if location == MEMORY:
        return MEMORY, _settings(url, query)
    path = unquote(location[1:])
    if not location.startswith("/") or not path or "\0" in path or not _is_encodable(path):
        raise ConfigurationError(f"{url_without_secrets(url)!r} names no file", hint=EXAMPLES)
    if path == MEMORY:
        raise ConfigurationError(
            f"{url_without_secrets(url)!r} is ambiguous", hint=f"write sqlite://:memory: or sqlite:///./{MEMORY}"
        )
    return path, _settings(url, query)


def _is_encodable(path: str) -> bool:
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        return False
    return True


def _settings(url: str, query: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError:  # its message quotes the setting
        raise ConfigurationError(
            f"{url_without_secrets(url)!r} has settings that cannot be parsed", hint="write ?synchronous=NORMAL"
        ) from None
    settings = dict(pairs)
    unknown = sorted(settings.keys() - set(SETTINGS))
    if unknown or len(pairs) > len(settings):
        names = ", ".join(setting_name_without_secrets(name, url) for name in unknown)
        what = f"unknown settings: {names}" if unknown else "a setting twice"
        raise ConfigurationError(
            f"{url_without_secrets(url)!r} has {what}",
            hint="the only setting is synchronous, as in ?synchronous=NORMAL",
        )
    return settings


def checked_synchronous(value: str) -> str:
    """Return the valid value. OFF is refused: an acknowledged claim must survive."""
    choice = value.upper()
    if choice not in SYNCHRONOUS:
        raise ConfigurationError(
            f"synchronous={value!r} is not supported",
            hint="FULL survives a power cut; NORMAL survives a crash of the process and is faster",
        )
    return choice


def absolute(path: str) -> str:
    """Return the absolute path, so that a later change of the working directory has no effect.

    Links are resolved, because SQLite puts the -wal beside the file itself.
    """
    if not path or "\0" in path:
        raise ConfigurationError(f"{path!r} names no file", hint=EXAMPLES)
    return os.path.realpath(path)


def name_of(path: str) -> str:
    """Return the URL of a path, for messages and for `open_store`."""
    return f"{SCHEME}{MEMORY}" if path == MEMORY else f"{SCHEME}/{quote(path, safe='/ ~:@')}"

"""Remove passwords from URLs and messages before they are shown or logged.

An invalid URL is shown to help its author. The error may be in the password itself, so everything that may be part
of a password is hidden, even if other text is hidden with it.
"""

from __future__ import annotations

import re
from typing import Final

HIDDEN: Final = "***"

_FILES: Final = ("sqlite:///", "duckdb:///", "file:///", "unix:///")

_USER_SCHEMES: Final = ("postgresql", "postgres", "mysql", "redis", "rediss", "unix", "amqp", "amqps")
"""Schemes whose URLs show a user name without a password. In other URLs, such as those of NATS, it may be a token."""

_HIDDEN_WORD: Final = "pass|secret|token|key|pwd|credential"
_is_hidden = re.compile(_HIDDEN_WORD, re.IGNORECASE).search
_setting_names = re.compile(r"(?<![^\s&?;=#/])[^\s&?;=#/]++").finditer
_is_assigned = re.compile(r"\s*=").match
_replace_assigned = re.compile(r"(?<![\w.-])([\w.-]++)=[^&\s'\"]+").sub
_replace_words = re.compile(r"(?:\S*:/+\s+)?\S+(?:(?<=,)\s+[^\s@]+@\S*)*").sub
"""A word may be a malformed URL with a space after its slashes, or a list of URLs separated by commas."""
_url_starts = re.compile(r"(?<![\w+.-])([\w+.-]*+)(:/+)").finditer
_user = re.compile(r"(?:[\w.+-]|%(?!3A))*(?=:|%3A|\Z)", re.IGNORECASE).match


def url_without_secrets(url: str) -> str:
    """Return a URL for messages, without password and secret settings. It may be malformed in any way."""
    if url.lower().startswith(_FILES):  # a path, without a user and a host
        return _hide_settings(url)
    scheme, separator, rest = url.partition("://")
    if not separator:
        scheme, rest = "", url
    before, at, after = rest.rpartition("@")
    if at:
        rest = f"{_shown_user(scheme, before) if separator else HIDDEN}@{after}"
    elif separator and ":" in rest and not _ends_in_port(rest):
        rest = f"{rest.partition(':')[0]}:{HIDDEN}"  # the host is missing: this may be a password
    return _hide_settings(f"{scheme}{separator}{rest}")


def _shown_user(scheme: str, before: str) -> str:
    """Return what is shown of the part between `scheme://` and the last @: at most the user name."""
    user = _user(before)
    if user is None:
        return HIDDEN
    if user.end() < len(before):
        return f"{user[0]}:{HIDDEN}"
    return before if scheme.lower().partition("+")[0] in _USER_SCHEMES else HIDDEN


def _hide_settings(url: str) -> str:
    """Hide the value of each secret setting, up to the next setting. Names and `=` may be percent-encoded."""
    shown: list[str] = []
    is_secret = False
    for part in url.split("&"):
        if is_secret and "=" not in part and "%3d" not in part.lower():  # no setting: the value contains a plain `&`
            shown.append(HIDDEN)
            continue
        shown.append(_hide_setting(part))
        is_secret = shown[-1] != part
    return "&".join(shown)


def _hide_setting(part: str) -> str:
    from urllib.parse import unquote  # imported only if a URL is shown

    for name in _setting_names(part):
        text = unquote(name[0])
        if not _is_hidden(text):
            continue
        if "=" in text:
            return f"{part[: name.start()]}{HIDDEN}"
        if _is_assigned(part, name.end()):
            return f"{part[: name.end()]}={HIDDEN}"
    return part


def setting_name_without_secrets(name: str, url: str) -> str:
    """Return the name of a setting of `url` for messages. It is hidden if it may be part of a secret value."""
    from urllib.parse import unquote

    query = url.partition("?")[2]
    is_setting = any(part.startswith(f"{name}=") for part in query.split("&"))
    return name if is_setting or not _is_hidden(unquote(query)) else HIDDEN


def text_without_secrets(text: str) -> str:
    """Return a message without the passwords of the URLs in it. A password may contain an @, so it ends at the last."""
    return _replace_assigned(_hide_assigned, _replace_words(_hide_in_word, text))


def _hide_assigned(match: re.Match[str]) -> str:
    """Hide secret settings of URLs, and passwords wherever they are assigned."""
    name = match[1]
    is_setting = match.string[match.start() - 1 : match.start()] in ("?", "&")
    hidden = (is_setting and _is_hidden(name)) or name.lower().endswith("password")
    return f"{name}={HIDDEN}" if hidden else match[0]


def _hide_in_word(match: re.Match[str]) -> str:
    word = match[0]
    if "@" not in word:
        return word
    for start in _url_starts(word):
        scheme, slashes = start.groups()
        is_drive = len(scheme) == 1 and slashes != "://"  # of Windows
        if f"{scheme.lower()}{slashes}" in _FILES or is_drive:  # a path
            continue
        before, at, after = word[start.end() :].rpartition("@")
        if not at:
            return word
        shown = _shown_user(scheme, before) if slashes == "://" else HIDDEN
        return f"{word[: start.end()]}{shown}@{after}"
    return word


def _ends_in_port(rest: str) -> bool:
    """Return whether the part after `scheme://` is host, or host:port, or a path."""
    host = re.split("[/?#]", rest, maxsplit=1)[0]
    return re.fullmatch(r"(\[[0-9A-Fa-f:.%]+\]|[^:\[\]]*)(:[0-9]*)?|:memory:", host) is not None

"""Open the objects below a URL."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, unquote, urlsplit

from onceward.errors import ConfigurationError
from onceward.protocol.duration import Duration, microseconds
from onceward.protocol.secrets import url_without_secrets

from .folder import Folder
from .names import checked_name
from .objects import Objects

EXAMPLES: Final = "write file:///folder, s3://bucket/prefix or gs://bucket/prefix"
TIMEOUT: Final = "30s"


def open_objects(url: str, *, endpoint: str | None = None, timeout: Duration = TIMEOUT, **settings: Any) -> Objects:
    """Return the objects below a local folder or a prefix in a bucket.

    Args:
        url: `file:///folder`, `s3://bucket/prefix` or `gs://bucket/prefix`.
        endpoint: The URL of an S3-compatible server.
        timeout: The maximum duration of one request.
        settings: Passed to obstore's store (`region`, `access_key_id`, …), which also reads the usual environment
            variables.

    Raises:
        ConfigurationError: The URL has another scheme, or a folder was given settings.
        MissingExtra: The driver for buckets is not installed.
    """
    scheme = url.partition("://")[0].lower()
    if scheme == "file":
        if endpoint is not None or settings:
            raise ConfigurationError("a folder has no settings", hint="omit endpoint and the other settings")
        return Objects(Folder(_folder(url)))
    if scheme in ("s3", "gs"):
        from .cloud import open_bucket  # imported here: a folder needs no driver

        bucket, prefix = _bucket(url)
        seconds = microseconds(timeout, "timeout") / 1_000_000
        return Objects(open_bucket(scheme, bucket, prefix, endpoint=endpoint, timeout=seconds, settings=settings))
    raise ConfigurationError(f"no object storage is available for {url_without_secrets(url)!r}", hint=EXAMPLES)


def _split_url(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:  # a [ without a matching ]; its message quotes the URL
        raise ConfigurationError("the URL cannot be parsed", hint=EXAMPLES) from None


def _folder(url: str) -> Path:
    parts = _split_url(url)
    path = unquote(parts.path)
    if parts.netloc not in ("", "localhost") or path in ("", "/") or "\0" in path or parts.query or parts.fragment:
        raise ConfigurationError(f"{url_without_secrets(url)!r} names no folder", hint="write file:///absolute/path")
    return Path(path)


def _bucket(url: str) -> tuple[str, str]:
    parts = _split_url(url)
    prefix = unquote(parts.path).strip("/")
    if not parts.netloc or ":" in parts.netloc or "@" in url or parts.query or parts.fragment:
        raise ConfigurationError(
            f"the {parts.scheme}:// URL does not name a bucket", hint=f"{EXAMPLES}; pass credentials as settings"
        )
    return parts.netloc, checked_name(prefix) if prefix else ""

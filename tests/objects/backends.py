"""Where the tests put objects: a folder of their own, and a bucket of a server that speaks S3."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onceward.objects import Objects, open_objects

if TYPE_CHECKING:
    from tests.servers.ministack import Ministack

BUCKET = "onceward"
KEYS = {"access_key_id": "test", "secret_access_key": "test", "region": "us-east-1"}
SERVER = "ONCEWARD_TEST_S3"
"""Where child processes of a test find the server."""

_servers: list[Ministack] = []


def server() -> Ministack:
    """Return the S3 server of this test worker, started on first use. It ends with its parent."""
    if not _servers:
        from tests.servers.ministack import Ministack

        _servers.append(Ministack().begin())
        os.environ[SERVER] = _servers[0].url
        s3().create_bucket(Bucket=BUCKET)
    return _servers[0]


def end() -> None:
    while _servers:
        _servers.pop().end()


def s3() -> Any:
    """Return a client of S3 itself, without the library."""
    import boto3  # takes half a second, which child processes avoid

    return boto3.client(
        "s3",
        endpoint_url=os.environ[SERVER],
        aws_access_key_id="test",
        aws_secret_access_key="test",
        region_name="us-east-1",
    )


def url_of_kind(kind: str, folder: Path) -> str:
    if kind == "folder":
        return (folder / "objects").as_uri()
    server()
    return f"s3://{BUCKET}/{folder.parent.name}-{folder.name}"


def opened(url: str, endpoint: str | None = None) -> Objects:
    """Open the objects, also in a child process."""
    if url.startswith("file:"):
        return open_objects(url)
    return open_objects(url, endpoint=endpoint or os.environ[SERVER], **KEYS)

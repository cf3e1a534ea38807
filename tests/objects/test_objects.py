"""Objects are created in one step or left as they are, in a local folder and on S3, sync and async."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from onceward import InvalidKey, PayloadMismatch, content_key
from onceward.objects import Put, open_objects
from onceward.objects.backend import PIECE
from onceward.objects.cloud import MAX_SINGLE_UPLOAD
from tests.objects.backends import opened
from tests.objects.contents import LARGE, LARGE_KEY, OTHER, PDF, large


@pytest.mark.mission("A6")
def test_an_existing_object_is_never_overwritten(objects: Any) -> None:
    assert objects.put("2026/a.pdf", PDF) == Put("2026/a.pdf", content_key(PDF), len(PDF), "created")
    assert objects.put("2026/a.pdf", PDF).status == "same"
    assert objects.put("2026/a.pdf", OTHER, if_other="return").status == "other"
    with pytest.raises(PayloadMismatch, match="other content under this name"):
        objects.put("2026/a.pdf", OTHER)
    assert objects.read("2026/a.pdf") == PDF
    assert list(objects.names()) == ["2026/a.pdf"]


@pytest.mark.mission("A6")
def test_two_documents_of_one_name_lie_side_by_side_however_often_they_come(objects: Any) -> None:
    beside = f"a-{content_key(OTHER)[7:19]}.pdf"
    assert objects.put("a.pdf", PDF, if_other="rename").name == "a.pdf"
    assert objects.put("a.pdf", OTHER, if_other="rename") == Put(beside, content_key(OTHER), len(OTHER), "created")
    assert objects.put("a.pdf", PDF, if_other="rename").status == "same"
    assert objects.delete("a.pdf", content_key(PDF)) == "deleted"
    assert objects.put("a.pdf", OTHER, if_other="rename") == Put(beside, content_key(OTHER), len(OTHER), "same")
    assert list(objects.names()) == [beside], "the second one stays where it is, also when the first one is gone"


@pytest.mark.mission("A6")
@pytest.mark.fault("F19")
def test_a_source_that_was_changed_since_it_was_hashed_is_not_put(objects: Any) -> None:
    with pytest.raises(PayloadMismatch, match="the source is no longer sha256:"):
        objects.put("a.pdf", OTHER, content=content_key(PDF), if_other="rename")
    assert (list(objects.names()), objects.purge(0)) == ([], 0), "nothing is left of it"
    assert objects.put("a.pdf", PDF, content=content_key(PDF)).status == "created"


def test_a_large_one_is_hashed_on_its_way(objects: Any) -> None:
    put = objects.put("large", large())
    assert (put.content, put.size, put.status) == (LARGE_KEY, LARGE, "created")
    assert objects.put("large", large()).status == "same"
    assert objects.put("large", b"".join(large())[:-1] + b"6", if_other="return").status == "other"
    assert sum(map(len, objects.pieces("large"))) == LARGE
    assert objects.purge(0) == 0, "nothing staged is left"


@pytest.mark.parametrize("how", ["bytes", "path", "stream", "pipe"])
def test_a_source_may_be_anything_that_has_bytes(tmp_path: Path, how: str) -> None:
    objects = open_objects((tmp_path / "objects").as_uri())
    path = tmp_path / "source"
    path.write_bytes(b"".join(large()))
    with path.open("rb") as stream:
        sources = {"bytes": path.read_bytes(), "path": path, "stream": stream, "pipe": _Pipe(path.read_bytes())}
        assert objects.put("large", sources[how]).content == LARGE_KEY  # type: ignore[arg-type]
    assert objects.content("large") == LARGE_KEY


class _Pipe(io.RawIOBase):
    """A stream that cannot seek."""

    def __init__(self, content: bytes) -> None:
        self._inner = io.BytesIO(content)

    def read(self, size: int = -1) -> bytes:
        return self._inner.read(min(size, 70_000))


@pytest.mark.parametrize("content", [b"", b"x", b"x" * MAX_SINGLE_UPLOAD])
def test_every_size_arrives(objects: Any, content: bytes) -> None:
    assert objects.put("a", content).content == content_key(content)
    assert objects.read("a") == content
    assert objects.put("a", content).status == "same"


@pytest.mark.mission("A6")
def test_an_undo_deletes_only_the_content_it_names(objects: Any) -> None:
    put = objects.put("a", PDF)
    assert objects.delete("a", content_key(OTHER)) == "other"
    assert objects.read("a") == PDF
    assert objects.delete("a", put.content) == "deleted"
    assert objects.delete("a", put.content) == "absent", "an undo that comes again"
    assert objects.content("a") is None
    with pytest.raises(FileNotFoundError, match="no object 'a'"):
        objects.read("a")


def test_a_source_that_breaks_leaves_nothing(objects: Any) -> None:
    def broken(pieces: int) -> Iterator[bytes]:
        for _ in range(pieces):
            yield b"x" * PIECE
        raise ZeroDivisionError("the reader's own")

    for pieces in (1, 12):
        with pytest.raises(ZeroDivisionError, match="the reader's own"):
            objects.put("a", broken(pieces))
    with pytest.raises(FileNotFoundError):
        objects.put("a", Path("/nowhere/at/all"))
    assert list(objects.names()) == []
    assert objects.purge(0) == 0


@pytest.mark.parametrize("source", ["text", io.StringIO("text"), 5, ["text"], [1]])
def test_a_source_without_bytes_is_refused(objects: Any, source: Any) -> None:
    with pytest.raises(InvalidKey):
        objects.put("a", source)
    assert list(objects.names()) == []


async def test_a_body_that_arrives_piece_by_piece_on_a_loop(url: str) -> None:
    async def body() -> AsyncIterator[bytes]:
        for piece in large():
            yield piece

    async with opened(url).aio as objects:
        assert (await objects.put("a", body())).content == LARGE_KEY
        assert await objects.names() == ["a"]


MEMORY = """
import re, sys
from pathlib import Path
from tests.objects.backends import opened

def highest():
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) >> 10

objects = opened(sys.argv[1])
objects.put("warm", b"x")
before, pieces = highest(), int(sys.argv[2])
assert objects.put("large", (bytes([n % 251]) * (1 << 20) for n in range(pieces))).size == pieces << 20
print(highest() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_large_one_goes_through_in_constant_memory(url: str) -> None:
    command = [sys.executable, "-c", MEMORY, url, "64"]
    done = subprocess.run(command, check=True, timeout=100, capture_output=True, text=True)
    assert int(done.stdout) < 50, "MiB, of 64"


@pytest.mark.parametrize("prefix", ["../", "a/../b", "./"])
def test_no_name_begins_outside_of_the_prefix(url: str, prefix: str) -> None:
    objects = opened(url)
    objects.put("a/b", b"1")
    assert list(objects.names(prefix)) == []

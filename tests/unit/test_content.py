from __future__ import annotations

import hashlib
import io
import tracemalloc
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from onceward.errors import InvalidKey
from onceward.keys.content import content_key
from onceward.keys.sources import Content
from tests.clients import SyncClient

EXPECTED = "sha256:" + hashlib.sha256(b"hello").hexdigest()


class Pipe(io.RawIOBase):
    """A stream without `seek` and `tell` that returns one byte per read."""

    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return self._data.read(1)


@pytest.mark.mission("A1", "B6")
def test_bytes_path_and_stream_of_one_content_have_one_key(tmp_path: Path) -> None:
    file = tmp_path / "a.pdf"
    file.write_bytes(b"hello")
    sources: list[Any] = [
        b"hello",
        bytearray(b"hello"),
        memoryview(b"hello"),
        file,
        io.BytesIO(b"hello"),
        Pipe(b"hello"),
    ]
    assert {content_key(source) for source in sources} == {EXPECTED}
    with file.open("rb") as stream:
        assert content_key(stream) == EXPECTED


@pytest.mark.mission("A1")
def test_a_renamed_file_is_the_same_file_and_a_changed_one_is_not(tmp_path: Path) -> None:
    file = tmp_path / "a.pdf"
    file.write_bytes(b"hello")
    before = content_key(file)
    renamed = file.rename(tmp_path / "b.pdf")
    assert content_key(renamed) == before
    renamed.write_bytes(b"hello!")
    assert content_key(renamed) != before


@pytest.mark.mission("A1")
def test_a_stream_is_hashed_from_where_it_stands_and_put_back() -> None:
    stream = io.BytesIO(b"xxhello")
    stream.seek(2)
    assert content_key(stream) == EXPECTED
    assert stream.tell() == 2  # plain: ok (file position)
    assert stream.read() == b"hello"


@pytest.mark.mission("A1")
def test_a_large_file_is_hashed_in_constant_memory(tmp_path: Path) -> None:
    file = tmp_path / "large"
    with file.open("wb") as stream:
        stream.truncate(200 << 20)
    tracemalloc.start()
    try:
        content_key(file)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 << 20


@pytest.mark.parametrize("source", ["name.pdf", io.StringIO("x"), io.StringIO(), None, 5])
def test_what_has_no_bytes_is_refused_with_a_hint(source: Any) -> None:
    with pytest.raises(InvalidKey, match=r"Path"):
        content_key(source)


def test_a_stream_that_gives_text_after_all_is_refused() -> None:
    class Text:
        def read(self, size: int) -> str:
            return "text"

    source: Any = Text()
    with pytest.raises(InvalidKey, match="binary mode"):
        content_key(source)


class OnlyForward(io.RawIOBase):
    """A stream like that of a socket or a pipe."""

    def __init__(self, content: bytes) -> None:
        self._content = io.BytesIO(content)

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return self._content.read(size)


@pytest.mark.mission("A1")
def test_a_stream_that_cannot_seek_is_refused_as_a_key_before_it_is_spent(client: SyncClient) -> None:
    def read_all(stream: BinaryIO) -> bytes:
        return stream.read()

    work = client(key=Content("stream"))(read_all)
    stream = OnlyForward(b"hello")
    with pytest.raises(InvalidKey, match="read its bytes first"):
        work(stream)
    assert stream.read() == b"hello"
    assert work(io.BytesIO(b"hello")) == b"hello"  # one that can seek reaches the work whole


def test_content_key_itself_may_spend_a_stream() -> None:
    stream: Any = OnlyForward(b"hello")
    assert content_key(stream) == EXPECTED
    assert stream.read() == b""

"""Objects are created in one step or left as they are, on a local folder and on S3, in both colours."""

from __future__ import annotations

import errno
import io
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from onceward import (
    ConfigurationError,
    InvalidKey,
    PayloadMismatch,
    StoreBroken,
    StoreNotSetUp,
    StoreUnavailable,
    content_key,
)
from onceward.objects import Objects, Put, folder, open_objects
from onceward.objects.cloud import IN_ONE
from onceward.objects.place import PIECE
from tests.objects.gcs_stand_in import Storage
from tests.objects.places import BUCKET, KEYS, opened, place_of, s3, server
from tests.servers.proxy import LOSE_REPLY, Proxy

PDF = b"%PDF-1.7 one"
OTHER = b"%PDF-1.7 two"
LARGE = IN_ONE + 3 * PIECE + 5


def large() -> Iterator[bytes]:
    """More than goes up in one request, and never all of it at once."""
    for number in range(LARGE // PIECE):
        yield bytes([number % 251]) * PIECE
    yield b"12345"


LARGE_KEY = content_key(b"".join(large()))


@pytest.mark.mission("A6")
def test_what_is_there_is_never_overwritten(objects: Any) -> None:
    assert objects.put("2026/a.pdf", PDF) == Put("2026/a.pdf", content_key(PDF), len(PDF), "created")
    assert objects.put("2026/a.pdf", PDF).status == "same"
    assert objects.put("2026/a.pdf", OTHER, if_other="tell").status == "other"
    with pytest.raises(PayloadMismatch, match="other content under this name"):
        objects.put("2026/a.pdf", OTHER)
    assert objects.read("2026/a.pdf") == PDF
    assert list(objects.names()) == ["2026/a.pdf"]


@pytest.mark.mission("A6")
def test_two_documents_of_one_name_lie_side_by_side_however_often_they_come(objects: Any) -> None:
    beside = f"a-{content_key(OTHER)[7:19]}.pdf"
    assert objects.put("a.pdf", PDF, if_other="beside").name == "a.pdf"
    assert objects.put("a.pdf", OTHER, if_other="beside") == Put(beside, content_key(OTHER), len(OTHER), "created")
    assert objects.put("a.pdf", PDF, if_other="beside").status == "same"
    assert objects.delete("a.pdf", content_key(PDF)) == "deleted"
    assert objects.put("a.pdf", OTHER, if_other="beside") == Put(beside, content_key(OTHER), len(OTHER), "same")
    assert list(objects.names()) == [beside], "the second one stays where it is, also when the first one is gone"


@pytest.mark.mission("A6")
@pytest.mark.fault("F19")
def test_a_source_that_was_changed_since_it_was_hashed_is_not_put(objects: Any) -> None:
    with pytest.raises(PayloadMismatch, match="the source is no longer sha256:"):
        objects.put("a.pdf", OTHER, content=content_key(PDF), if_other="beside")
    assert (list(objects.names()), objects.purge(0)) == ([], 0), "nothing is left of it"
    assert objects.put("a.pdf", PDF, content=content_key(PDF)).status == "created"


def test_a_large_one_is_hashed_on_its_way(objects: Any) -> None:
    put = objects.put("large", large())
    assert (put.content, put.size, put.status) == (LARGE_KEY, LARGE, "created")
    assert objects.put("large", large()).status == "same"
    assert objects.put("large", b"".join(large())[:-1] + b"6", if_other="tell").status == "other"
    assert sum(map(len, objects.pieces("large"))) == LARGE
    assert objects.purge(0) == 0, "nothing is left of what was staged"


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


@pytest.mark.parametrize("content", [b"", b"x", b"x" * IN_ONE])
def test_every_size_arrives(objects: Any, content: bytes) -> None:
    assert objects.put("a", content).content == content_key(content)
    assert objects.read("a") == content
    assert objects.put("a", content).status == "same"


@pytest.mark.mission("A6")
def test_an_undo_deletes_only_what_it_was_told(objects: Any) -> None:
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


# ── at once ──


@pytest.mark.mission("A6")
@pytest.mark.parametrize("size", ["small", "large"])
def test_of_many_threads_one_creates_and_the_others_are_told(url: str, size: str) -> None:
    contents = [PDF, OTHER] if size == "small" else [b"".join(large()), b"".join(large()) + b"!"]
    answers: list[Put] = []
    errors: list[BaseException] = []
    line = threading.Barrier(6)

    def put(number: int) -> None:
        mine = opened(url)
        try:
            line.wait(30)
            answers.append(mine.put("one", contents[number % 2], if_other="tell"))
        except BaseException as error:
            errors.append(error)

    crew = [threading.Thread(target=put, args=(number,)) for number in range(6)]
    for one in crew:
        one.start()
    for one in crew:
        one.join()
    assert errors == []
    won = [answer for answer in answers if answer.status == "created"]
    assert len(won) == 1
    assert opened(url).content("one") == won[0].content
    assert sorted(answer.status for answer in answers) == ["created", "other", "other", "other", "same", "same"]


RACER = """
import sys
from tests.objects.places import opened

url, number, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
objects = opened(url)
print("ready", flush=True)
for turn in range(rounds):
    sys.stdin.readline()
    print(objects.put(f"{turn}", b"%d" % number, if_other="tell").status, flush=True)
"""


def test_of_several_processes_one_creates_each(url: str) -> None:
    rounds = 8
    crew = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, url, str(number), str(rounds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(3)
    ]
    try:
        for one in crew:
            assert one.stdout is not None
            assert one.stdout.readline() == "ready\n"
        for turn in range(rounds):
            for one in crew:
                assert one.stdin is not None
                one.stdin.write("go\n")
                one.stdin.flush()
            told = [one.stdout.readline().strip() for one in crew if one.stdout is not None]
            assert sorted(told) == ["created", "other", "other"]
            assert opened(url).read(f"{turn}") == b"%d" % told.index("created")
    finally:
        for one in crew:
            one.communicate()


KILLED = """
import os, signal, sys
from onceward.objects.place import PIECE
from tests.objects.places import opened

def dying():
    for number in range(14):
        yield bytes([number]) * PIECE
    if sys.argv[2] == "while it is read":
        os.kill(os.getpid(), signal.SIGKILL)

objects = opened(sys.argv[1])
if sys.argv[2] == "before it has its name":
    objects._place.create = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[2] == "after it has its name":
    objects._place.unstage = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
print(objects.put("a", dying()).status)
"""


@pytest.mark.mission("A6")
@pytest.mark.fault("F30")
@pytest.mark.parametrize("when", ["while it is read", "before it has its name", "after it has its name"])
def test_a_worker_that_is_killed_leaves_all_of_it_or_nothing_under_the_name(url: str, when: str) -> None:
    command = [sys.executable, "-c", KILLED, url]
    assert subprocess.run([*command, when], check=False, timeout=60).returncode == -signal.SIGKILL
    objects = opened(url)
    is_there = when == "after it has its name"
    assert list(objects.names()) == (["a"] if is_there else [])
    again = subprocess.run([*command, "never"], check=True, timeout=60, capture_output=True, text=True)
    assert again.stdout.strip() == ("same" if is_there else "created")
    whole = b"".join(bytes([number]) * PIECE for number in range(14))
    assert objects.content("a") == content_key(whole)
    objects.purge(0)
    assert list(objects.names()) == ["a"], "what never became an object is swept away, and nothing else"
    assert objects.purge(0) == 0


# ── Google Cloud Storage: what is asked ──


def test_on_google_cloud_storage_every_request_that_gives_a_name_carries_the_condition() -> None:
    with Storage() as storage:
        objects = open_objects("gs://bucket/prefix", **storage.settings)
        small = objects.put("a", PDF)
        assert (small.status, objects.put("a", PDF).status) == ("created", "same")
        assert objects.put("a", OTHER, if_other="tell").status == "other"
        assert (objects.put("b", large()).status, objects.put("b", large()).status) == ("created", "same")
        assert set(storage.objects) == {"prefix/a", "prefix/b"}, "nothing staged is left"
        assert storage.objects["prefix/a"] == PDF
        assert storage.conditions == [("put", "0")] * 3 + [("copy", "0")] * 2
        assert objects.delete("a", small.content) == "deleted"
        assert set(storage.objects) == {"prefix/b"}


# ── trouble ──


@pytest.mark.fault("F53")
def test_a_create_whose_answer_is_lost_is_found_by_its_content(tmp_path: Path) -> None:
    url = place_of("s3", tmp_path)
    with Proxy("127.0.0.1", server().port) as proxy:
        objects = opened(url, endpoint=f"http://127.0.0.1:{proxy.port}")
        proxy.next(LOSE_REPLY)
        try:
            status = objects.put("a", PDF).status
        except StoreUnavailable:  # the driver does not repeat what it believes to be unsafe
            status = objects.put("a", PDF).status
        assert status == "same"
        assert objects.read("a") == PDF


def test_what_another_program_put_there_is_not_deleted_nor_overwritten(tmp_path: Path) -> None:
    url = place_of("s3", tmp_path)
    objects = opened(url)
    put = objects.put("a", PDF)
    s3().put_object(Bucket=BUCKET, Key=f"{url.removeprefix(f's3://{BUCKET}/')}/a", Body=OTHER)
    assert objects.delete("a", put.content) == "other"
    assert objects.read("a") == OTHER


def test_one_that_is_replaced_while_an_undo_reads_it_stays(url: str) -> None:
    objects = opened(url)
    put = objects.put("a", PDF)
    find = objects._place.find

    def and_replaced(name: str) -> Any:
        there = find(name)
        objects._place.delete(name)
        opened(url).put(name, OTHER)
        return there

    objects._place.find = and_replaced  # type: ignore[method-assign]
    assert objects.delete("a", put.content) == "other"
    assert opened(url).read("a") == OTHER


FORKED = """
import os, sys
from tests.objects.places import opened

objects = opened(sys.argv[1])
objects.put("a", b"x")
child = os.fork()
if child == 0:
    try:
        print(opened(sys.argv[1]).put("b", b"x").status, flush=True)
    except Exception as error:
        print(error, flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""


@pytest.mark.fault("F34")
def test_a_child_that_was_forked_is_told_instead_of_left_waiting(url: str) -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORKED, url]
    told = subprocess.run(command, check=True, timeout=60, capture_output=True, text=True).stdout
    assert ("was forked" in told) if url.startswith("s3:") else (told == "created\n")


def test_a_bucket_that_is_not_there_says_so() -> None:
    objects = open_objects("s3://nowhere/x", endpoint=server().url, **KEYS)
    with pytest.raises(StoreNotSetUp, match="s3://nowhere/x: no such bucket"):
        objects.put("a", PDF)


@pytest.mark.fault("F50")
def test_a_server_that_is_away_says_so() -> None:
    objects = open_objects("s3://b/x", endpoint="http://127.0.0.1:9", timeout="2s", **KEYS)
    with pytest.raises(StoreUnavailable, match="nothing is ever overwritten"):
        objects.put("a", PDF)


NOWHERE = ["file://", "file:///", "file://host/a", "s3://", "s3://k@b/x", "s3://b/../x", "gs://", "s3://[", "file://["]


@pytest.mark.parametrize("url", NOWHERE)
def test_a_url_that_names_no_place_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError):
        open_objects(url)


def test_a_choice_that_is_not_there_is_refused(tmp_path: Path) -> None:
    url = tmp_path.as_uri()
    with pytest.raises(ConfigurationError, match="has no settings"):
        open_objects(url, region="x")
    with pytest.raises(ConfigurationError, match="if_other"):
        open_objects(url).put("a", PDF, if_other="overwrite")  # type: ignore[arg-type]


# ── a folder's own ──


def test_a_name_below_a_file_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    objects = open_objects(tmp_path.as_uri())
    objects.put("a", PDF)
    with pytest.raises(StoreBroken, match="a file and a folder of one name"):
        objects.put("a/b", PDF)
    assert objects.content("a/b") is None
    assert objects.read("a") == PDF


def test_a_file_where_the_folder_should_be_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreBroken, match="a file and a folder of one name"):
        open_objects((tmp_path / "file").as_uri())


MEMORY = """
import re, sys
from pathlib import Path
from tests.objects.places import opened

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
    told = subprocess.run(command, check=True, timeout=100, capture_output=True, text=True)
    assert int(told.stdout) < 50, "MiB, of 64"


def test_it_names_itself(tmp_path: Path) -> None:
    objects: Objects = open_objects(f"{tmp_path.as_uri()}/a%20b")
    assert repr(objects) == f"<Objects on {tmp_path.as_uri()}/a%20b>"
    assert (tmp_path / "a b").is_dir()


def test_what_is_told_to_be_there_is_as_durable_as_what_was_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever created it may have been killed between the link and the sync of its folder."""
    objects = open_objects(tmp_path.as_uri())
    objects.put("2026/a", b"1")
    synced: list[Path] = []
    monkeypatch.setattr(folder, "_sync", synced.append)
    assert objects.put("2026/a", b"1").status == "same"
    assert tmp_path / "2026" in synced


def test_a_link_that_leads_nowhere_is_said_to_be_one(tmp_path: Path) -> None:
    objects = open_objects(tmp_path.as_uri())
    (tmp_path / "a").symlink_to(tmp_path / "nothing")
    with pytest.raises(StoreBroken, match="leads nowhere"):
        objects.put("a", b"1")
    assert (tmp_path / "a").is_symlink()


def test_a_folder_that_cannot_be_written_to_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    objects = open_objects(tmp_path.as_uri())
    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(StoreNotSetUp, match="not allowed"):
        objects.put("a", b"1")


@pytest.mark.parametrize("prefix", ["../", "a/../b", "./"])
def test_no_name_begins_outside_of_the_prefix(url: str, prefix: str) -> None:
    objects = opened(url)
    objects.put("a/b", b"1")
    assert list(objects.names(prefix)) == []

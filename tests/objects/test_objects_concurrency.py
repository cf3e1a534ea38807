"""Of many concurrent creators of one object, one succeeds; a killed or forked one leaves all of it or nothing."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from onceward import content_key
from onceward.objects import Put
from onceward.objects.backend import PIECE
from tests.objects.backends import BUCKET, opened, s3, url_of_kind
from tests.objects.contents import OTHER, PDF, large


@pytest.mark.mission("A6")
@pytest.mark.parametrize("size", ["small", "large"])
def test_of_many_threads_one_creates_and_the_others_learn_that_it_exists(url: str, size: str) -> None:
    contents = [PDF, OTHER] if size == "small" else [b"".join(large()), b"".join(large()) + b"!"]
    answers: list[Put] = []
    errors: list[BaseException] = []
    line = threading.Barrier(6)

    def put(number: int) -> None:
        mine = opened(url)
        try:
            line.wait(60)
            answers.append(mine.put("one", contents[number % 2], if_other="return"))
        except BaseException as error:
            errors.append(error)

    pool = [threading.Thread(target=put, args=(number,)) for number in range(6)]
    for one in pool:
        one.start()
    for one in pool:
        one.join()
    assert errors == []
    won = [answer for answer in answers if answer.status == "created"]
    assert len(won) == 1
    assert opened(url).content("one") == won[0].content
    assert sorted(answer.status for answer in answers) == ["created", "other", "other", "other", "same", "same"]


RACER = """
import sys
from tests.objects.backends import opened

url, number, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
objects = opened(url)
print("ready", flush=True)
for turn in range(rounds):
    sys.stdin.readline()
    print(objects.put(f"{turn}", b"%d" % number, if_other="return").status, flush=True)
"""


def test_of_several_processes_one_creates_each(url: str) -> None:
    rounds = 8
    pool = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, url, str(number), str(rounds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(3)
    ]
    try:
        for one in pool:
            assert one.stdout is not None
            assert one.stdout.readline() == "ready\n"
        for turn in range(rounds):
            for one in pool:
                assert one.stdin is not None
                one.stdin.write("go\n")
                one.stdin.flush()
            results = [one.stdout.readline().strip() for one in pool if one.stdout is not None]
            assert sorted(results) == ["created", "other", "other"]
            assert opened(url).read(f"{turn}") == b"%d" % results.index("created")
    finally:
        for one in pool:
            one.communicate()


KILLED = """
import os, signal, sys
from onceward.objects.backend import PIECE
from tests.objects.backends import opened

def dying():
    for number in range(14):
        yield bytes([number]) * PIECE
    if sys.argv[2] == "while it is read":
        os.kill(os.getpid(), signal.SIGKILL)

objects = opened(sys.argv[1])
if sys.argv[2] == "before it has its name":
    objects._backend.create = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[2] == "after it has its name":
    objects._backend.unstage = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
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
    assert list(objects.names()) == ["a"], "only uploads that never became an object are cleaned up"
    assert objects.purge(0) == 0


# ── meanwhile ──


def test_an_object_of_another_program_is_not_deleted_nor_overwritten(tmp_path: Path) -> None:
    url = url_of_kind("s3", tmp_path)
    objects = opened(url)
    put = objects.put("a", PDF)
    s3().put_object(Bucket=BUCKET, Key=f"{url.removeprefix(f's3://{BUCKET}/')}/a", Body=OTHER)
    assert objects.delete("a", put.content) == "other"
    assert objects.read("a") == OTHER


def test_an_object_that_is_replaced_while_an_undo_reads_it_stays(url: str) -> None:
    objects = opened(url)
    put = objects.put("a", PDF)
    find = objects._backend.find

    def and_replaced(name: str) -> Any:
        there = find(name)
        objects._backend.delete(name)
        opened(url).put(name, OTHER)
        return there

    objects._backend.find = and_replaced  # type: ignore[method-assign]
    assert objects.delete("a", put.content) == "other"
    assert opened(url).read("a") == OTHER


FORKED = """
import os, sys
from tests.objects.backends import opened

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
def test_a_forked_child_gets_an_error_instead_of_waiting_forever(url: str) -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORKED, url]
    output = subprocess.run(command, check=True, timeout=60, capture_output=True, text=True).stdout
    assert ("was forked" in output) if url.startswith("s3:") else (output == "created\n")

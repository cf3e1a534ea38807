"""A small backlog through a real queue; `python -m tests.learning.large 200000 3` is the large one."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.learning.__main__ import main
from examples.learning.backlog import REPEAT_EVERY, statement, statements
from examples.learning.records import MERGE_CHARACTERS, parse_statement, split_rows
from examples.learning.storage import open_storage
from tests.learning.large import LEAKING, LONG, MORE, growing, large


@pytest.mark.mission("D1", "D5", "D6")
def test_a_backlog_is_consumed_once_though_its_consumer_is_killed_on_the_way() -> None:
    done = large(2_000, 1, largest=50)
    assert not done.wrong
    assert (done.statements, done.duplicates) == (1_600, 400)
    assert done.lines_of_progress > 0
    assert done.messages_of_the_last_run < 2_000, "acknowledged messages are not redelivered after the kill"


def test_a_backlog_takes_no_more_memory_the_longer_it_is() -> None:
    done = large(20_000, 0, largest=500)
    assert not done.wrong
    assert done.messages_of_the_last_run >= LONG, "so memory was measured"


def test_a_consumer_that_keeps_every_batch_is_found_out() -> None:
    """The same backlog with a planted leak: everything is right except the memory."""
    done = large(20_000, 0, largest=500, program=LEAKING)
    assert done.statements == 16_000
    assert {one.partition(":")[0] for one in done.wrong} == {"it took more and more memory"}


def test_large_statements_go_into_several_merges_each_with_its_verdict(tmp_path: Path) -> None:
    """A batch is limited by the number of messages; a merge is also limited by their size."""
    padded = [{**statement(5 * n), "context": {"extensions": {"http://x.example": "x" * 200_000}}} for n in range(50)]
    many = [parse_statement(one) for one in padded]
    with open_storage(tmp_path) as place:
        other = [{**padded[7], "verb": {"id": "http://verbs.example/other"}}, statement(3)]
        assert place.learning.store([*many[:25], *many[:3]]).verdicts == ("inserted",) * 25 + ("same",) * 3
        verdicts = place.learning.store([*map(parse_statement, other), *many]).verdicts
        assert verdicts == ("different", "inserted", *["same"] * 25, *["inserted"] * 25)
    parts = list(split_rows({"statement": "x" * (MERGE_CHARACTERS // 3)} for _ in range(8)))
    assert [len(part) for part in parts] == [4, 4]
    assert list(split_rows([])) == []


def test_memory_is_judged_by_what_the_last_half_adds() -> None:
    assert growing("", [100, 180, 180 + MORE, 180 + MORE]) == []
    assert growing("", [100, 200]) == [], "it started in the middle of the run"
    assert growing("it had", [100, 180, 180, 181 + MORE]) == [
        f"it took more and more memory: it had [100, 180, 180, {181 + MORE}] MiB"
    ]


@pytest.mark.parametrize(
    ("queue", "why"),
    [
        ("redis://:secret@127.0.0.1:1/0", "cannot connect to Redis at redis://:***@127.0.0.1:1/0"),
        ("nowhere", "Redis URL must"),
    ],
)
def test_a_queue_that_is_not_there_is_one_line(
    queue: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["consume", "--queue", queue, "--size", "10", "--folder", str(tmp_path)]) == 1
    said = capsys.readouterr()
    assert why in said.err
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert not list(tmp_path.iterdir()), "no file was created"


def test_every_fifth_statement_of_the_backlog_repeats_another_one() -> None:
    many = [parse_statement(one) for one in statements(200)]
    known: dict[str, str] = {}
    repeats = 0
    for number, one in enumerate(many):
        repeats += one.id in known
        assert known.setdefault(one.id, one.digest) == one.digest
        assert (one.id == statement(number)["id"]) or number % REPEAT_EVERY == REPEAT_EVERY - 1
    assert repeats == 200 // REPEAT_EVERY

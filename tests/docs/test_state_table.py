"""The page about the state table matches the code."""

from __future__ import annotations

import re

import pytest

from docs.make_state_table import PAGE, VERBS, Sample, attempt_meanings, attempt_section, changes, page, samples
from onceward.engine.attempt import MOVES, AttemptState
from onceward.protocol.record import RecordState
from onceward.protocol.transitions import Row


def test_the_committed_page_is_what_the_generator_writes_now() -> None:
    assert PAGE.read_text("utf-8") == page(), "run: python docs/make_state_table.py"


def test_every_row_of_the_table_is_on_the_page_with_every_verb() -> None:
    lines = [line for line in page().splitlines() if line.startswith("| ")]
    table = [line for line in lines if line.count("|") == len(VERBS) + 2]
    names = [line.split(" | ")[0].removeprefix("| ") for line in table[1:]]
    assert names == [sample.name for sample in samples()]
    for row in Row:
        assert any(name.startswith(row.value) for name in names)


def test_the_diagram_shows_every_state_and_leaves_parked_only_by_those_who_know() -> None:
    ends = {end for edge in changes() for end in edge}
    assert ends == {"[*]", *(state.value for state in RecordState)}
    ways_out = {
        re.sub(r" \(.*", "", verb) for (start, end), verbs in changes().items() for verb in verbs if start == "PARKED"
    }
    assert ways_out == {"resolve", "complete", "forget"}


def test_a_row_without_a_sample_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def all_but_parked() -> list[Sample]:
        return [sample for sample in samples() if sample.row is not Row.PARKED]

    monkeypatch.setattr("docs.make_state_table.samples", all_but_parked)
    with pytest.raises(SystemExit, match="PARKED"):
        page()


def test_the_diagram_of_the_attempt_shows_every_move_and_every_meaning() -> None:
    section = attempt_section()
    for start, ends in MOVES.items():
        assert f"| `{start.name}` | {attempt_meanings()[start]} |" in section
        drawn = set(re.findall(rf"^    {start.name} --> (\w+)$", section, re.MULTILINE))
        assert drawn == {end.name for end in ends}


def test_a_state_of_the_attempt_without_a_meaning_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("docs.make_state_table.attempt_meanings", lambda: {AttemptState.NEW: "nothing was sent"})
    with pytest.raises(SystemExit, match="LOST"):
        page()

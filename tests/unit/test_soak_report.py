"""The report of a soak shows the figures of the run, and nothing better."""

from __future__ import annotations

from tests.soak import pytest_figures, report
from tests.soak_section import Section

SAID = """
tests/unit/test_window.py::test_one:

  - during generate phase (0.27 seconds):
    - 5000 passing, 0 failing, and 3 invalid test cases

tests/unit/test_window.py::test_two:
    - 100 passing, 1 failing, and 0 invalid test cases

1 failed, 18 passed, 2 skipped in 20.10s
"""


def test_figures_are_those_that_pytest_and_hypothesis_printed() -> None:
    assert pytest_figures(SAID) == [
        ("tests failed", 1),
        ("tests passed", 18),
        ("tests skipped", 2),
        ("random examples passed", 5100),
    ]
    assert pytest_figures("== 4 passed in 22.00s (0:00:22) ==") == [("tests passed", 4)]
    assert pytest_figures("it did not even start") == []


def test_one_failed_part_makes_the_whole_report_say_failed() -> None:
    good = Section("Properties", "pytest", passed=True, figures=[("tests passed", 4)])
    assert "Result: **passed**" in report([good], "abc", "python -m tests.soak")
    text = report([good, good._replace(title="Demo", passed=False)], "abc", "python -m tests.soak")
    assert "Result: **FAILED**" in text
    assert "## Properties: passed" in text
    assert "## Demo: FAILED" in text
    assert "| tests passed | 4 |" in text
    assert "`python -m tests.soak`" in text

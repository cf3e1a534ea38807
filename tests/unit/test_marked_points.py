"""A point of the mission, a rival's failure or a fault that has a test today never loses its last one unnoticed."""

from __future__ import annotations

from pathlib import Path

from tests.marked_points import marked_points

COMMITTED = Path(__file__).parent.parent / "marked_points.txt"
RENEW = "python -m tests.marked_points > tests/marked_points.txt"


def test_no_point_loses_its_last_test_and_new_points_are_listed() -> None:
    committed, current = COMMITTED.read_text(encoding="utf-8").split("\n"), marked_points()
    lost = [point for point in committed if point and point not in current]
    new = [point for point in current if point not in committed]
    assert not lost, (
        f"no test is marked with {', '.join(lost)} any more: mark one, or explain the removal and run {RENEW}"
    )
    assert not new, f"{', '.join(new)} now have a test: run {RENEW}"

"""Functions of deployments that declare an operation differently, and what the log says about them."""

from __future__ import annotations

import pytest


def by_number(n: int, note: str = "") -> None: ...


def by_reordered(note: str = "", n: int = 1) -> None: ...


def by_number_and_sum(n: int, note: str = "", cents: int = 0) -> None: ...


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if "is now declared with" in one.getMessage()]

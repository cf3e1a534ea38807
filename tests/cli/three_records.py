"""Three records in a store on a server, and what the command prints about them on every server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from onceward import Once
from onceward.cli.settings import VARIABLES
from tests.cli.calls import as_json, raising, silent_claims


@contextmanager
def three_records(
    url: str, folder: Path, patch: pytest.MonkeyPatch, *, lease: str = "50ms", lapse: float = 0.06
) -> Iterator[str]:
    """Make a completed, a parked and an expired record in the store that the command finds by default."""
    patch.chdir(folder)
    for variable in VARIABLES.values():
        patch.delenv(variable, raising=False)
    patch.setenv("ONCEWARD_STORE_URL", url)
    once = Once(url)
    once.run("done", lambda: 1)
    with pytest.raises(ZeroDivisionError):
        once.using(after_crash="park").run("parked", raising(ZeroDivisionError()))
    silent_claims(once, {"silent": lease}, lapse)
    yield url
    once.close(timeout=0)


def standings(said: list[dict[str, Any]]) -> dict[str, str]:
    return {one["key"]: one["standing"] for one in said}


def test_records_are_listed_shown_explained_and_counted(store: str) -> None:
    """Imported by the test modules of the servers, each of which has a `store` fixture."""
    assert standings(as_json("ls")) == {"done": "COMPLETED", "parked": "PARKED", "silent": "PENDING lapsed"}
    assert standings(as_json("ls", "--state", "PARKED")) == {"parked": "PARKED"}
    assert as_json("show", "done")["state"] == "COMPLETED"
    assert "ZeroDivisionError" in " ".join(as_json("explain", "parked")["explanation"])
    assert {state: number for state, number in as_json("stats")["default/shared"].items() if number} == {
        "COMPLETED": 1,
        "PARKED": 1,
        "PENDING": 1,
    }
    assert as_json("config")["store"]["value"].startswith(store.partition(":")[0])

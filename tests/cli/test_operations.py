"""`onceward operations`, and what the other commands read from the table."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onceward import Once
from onceward.cli.exit_codes import Exit
from onceward.cli.settings import VARIABLES
from onceward.operations import Operations
from tests.cli.calls import as_json, call, line, process, silent_claims

STORE = "sqlite:///onceward.db"
TABLE = """
[operations.email]
key = "email:{prospect_id}"
window = "24h"
lease = "300s"
fingerprint = "none"
reasons = { done = "already_emailed_today", running = "send_in_progress", parked = "ask" }

[operations.import]
key = ["import:{email}", "import:{name}:{city}"]
window = "forever"
"""

pytestmark = pytest.mark.mission("C9")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for variable in VARIABLES.values():
        monkeypatch.delenv(variable, raising=False)
    return tmp_path


@pytest.fixture
def module(folder: Path) -> Iterator[str]:
    """A user's program that declares operations in code."""
    (folder / "shop_of_this_test.py").write_text(
        "from onceward import Once\nfrom onceward.operations import Operations\n"
        "from onceward.stores import MemoryStore\n"
        "operations = Operations(charge={'key': 'charge:{order}', 'window': '1h'})\n"
        "once = Once(MemoryStore(), operations=operations, lease='5m')\n"
        "number = 5\n"
        "bare = Once(MemoryStore())\n"
    )
    before = list(sys.path)
    yield "shop_of_this_test"
    sys.path[:] = before
    sys.modules.pop("shop_of_this_test", None)


def filed(folder: Path, text: str = TABLE) -> None:
    (folder / "onceward.toml").write_text(text)


def test_the_table_is_listed_for_programs(folder: Path) -> None:
    filed(folder)
    email, imported = as_json("operations")
    assert email == {
        "name": "email",
        "key": "email:{prospect_id}",
        "window": "lasting 1d",
        "window_from": "completion",
        "lease": "5m",
        "on_running": "wait",
        "on_done": "replay",
        "after_crash": "rerun",
        "max_attempts": None,
        "fingerprint": "none",
        "retry_span": None,
        "reasons": {"done": "already_emailed_today", "running": "send_in_progress", "parked": "ask"},
        "from": "onceward.toml",
        "attention": None,
    }
    assert imported["key"] == ["import:{email}", "import:{name}:{city}"]
    assert imported["window"] == "forever"


def test_the_table_is_listed_for_people(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    filed(folder)
    lines = call("operations", "-o", "table").stdout.splitlines()
    assert lines[0].split() == ["NAME", "KEY", "WINDOW", "LEASE", "RUNNING", "AFTER", "CRASH", "REASONS"]
    assert lines[1].split()[:4] == ["email", "email:{prospect_id}", "lasting", "1d"]
    assert "done=already_emailed_today" in lines[1]
    assert "import:{email} or import:{name}:{city}" in lines[2]


def test_operations_declared_in_code_are_found_by_module_and_name(module: str) -> None:
    (one,) = as_json("operations", f"{module}:operations")
    assert (one["name"], one["window"], one["lease"], one["from"]) == ("charge", "lasting 1h", "1m", "code")
    (one,) = as_json("operations", f"{module}:once")
    assert one["lease"] == "5m", "the client's declaration applies where the table has none"


def test_it_works_as_a_process_of_its_own(folder: Path, module: str) -> None:
    code, out, err = process(folder, "operations", f"{module}:once")
    assert (code, err) == (0, b"")
    assert json.loads(out)[0]["name"] == "charge"


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("shop_of_this_test", "is not the path of an object"),
        ("no_such_module:once", "cannot be imported: No module named"),
        ("shop_of_this_test:two", "shop_of_this_test has no 'two'"),
        ("shop_of_this_test:number", "neither an Operations object nor a client"),
    ],
)
def test_a_path_without_operations_is_an_error_of_one_line(module: str, place: str, message: str) -> None:
    result = call("operations", place)
    assert result.exit_code == Exit.USAGE
    assert message in line(result)


def test_without_a_table_it_says_where_to_write_one() -> None:
    result = call("operations")
    assert result.exit_code == Exit.ABSENT
    assert "[operations.NAME] to onceward.toml" in line(result)
    assert "the settings file declares no operations (functions that are only decorated are not listed" in line(result)


def test_a_client_with_decorated_functions_only_says_that_they_are_not_listed(module: str) -> None:
    result = call("operations", f"{module}:bare")
    assert result.exit_code == Exit.ABSENT
    assert "bare declares no operations (functions that are only decorated are not listed here)" in line(result)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[operations.email]\nwindw = "24h"', "email: there is no field 'windw' → did you mean 'window'?"),
        ('[operation.email]\nwindow = "24h"', "there is no setting 'operation' → did you mean 'operations'?"),
        ("operations = 5", "operations is not a table of operations"),
    ],
)
def test_a_mistake_in_the_file_is_named(folder: Path, text: str, message: str) -> None:
    filed(folder, text)
    result = call("operations")
    assert result.exit_code == Exit.USAGE
    assert message in line(result)


@pytest.mark.fault("F47")
def test_a_window_that_is_too_short_is_reported_with_the_reason_and_by_the_exit_code(folder: Path) -> None:
    filed(folder, '[operations.email]\nwindow = "24h"\nretry_span = "3d"\n')
    result = call("operations")
    assert result.exit_code == Exit.ATTENTION
    assert json.loads(result.stdout)[0]["attention"].startswith("the window (lasting 1d) is shorter than")
    assert "email: the window" in line(result)
    assert "a late redelivery will run again" in line(result)


@pytest.mark.fault("F47")
@pytest.mark.parametrize("version", [None, 2])
def test_the_doctor_compares_the_declared_retry_span_with_the_records(folder: Path, version: int | None) -> None:
    table: Any = {"email": {"window": "24h", "version": version}}
    with Once(STORE, operations=Operations(table)) as once:

        @once.operation("email")
        def send(to: str) -> None: ...

        send("ann")
    filed(folder, '[operations.email]\nretry_span = 259200\nwindow = "7d"\n')
    checks = {one["name"]: one for one in json.loads(call("doctor").stdout)}
    assert checks["window email"]["status"] == "attention"
    assert "but the sender redelivers for 3d" in checks["window email"]["detail"]
    filed(folder, '[retry_spans]\nemail = "2h"\n[operations.email]\nretry_span = "3d"\nwindow = "7d"\n')
    checks = {one["name"]: one for one in json.loads(call("doctor").stdout)}
    assert checks["window email"]["status"] == "ok", "its own setting wins"
    assert as_json("config")["retry_spans.email"] == {"value": "2h", "source": "onceward.toml"}


def test_explain_says_what_callers_get(folder: Path) -> None:
    filed(folder)
    with Once(STORE, operations="onceward.toml") as once:

        @once.operation("email")
        def send(prospect_id: int) -> None: ...

        send(1)
    story = as_json("explain", "email:1")["explanation"]
    assert "Its callers get the reason 'already_emailed_today'." in story
    (folder / "onceward.toml").unlink()
    assert "already_emailed_today" not in str(as_json("explain", "email:1"))


def test_explain_describes_a_lock_as_a_lock(folder: Path) -> None:
    with Once(STORE) as once:
        lock = once.lock("sync", lease="1h").acquire()
        (held, left) = as_json("explain", "sync")["explanation"]
        assert held.startswith("It is a lock, held by ")
        assert f"with token {lock.token}." in held
        assert "then it is free" in left
        lock.release()
    (free,) = as_json("explain", "sync")["explanation"]
    assert free.startswith("It is a lock, and free. ")


def test_explain_describes_a_lock_whose_owner_died(folder: Path) -> None:
    once = Once(STORE)
    once.lock("sync", lease="50ms").acquire()
    silent_claims(once, {})
    (silent, free) = as_json("explain", "sync")["explanation"]
    assert silent.startswith("It is a lock whose owner, ")
    assert free == "It is free: the next caller can acquire it."
    once.close()

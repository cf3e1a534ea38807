"""A deployment that changes an operation of a table: only what the table declares is compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from onceward import AsyncOnce, Once
from onceward.administration.policy_text import declared_window
from onceward.client import compare_declarations
from onceward.operations.operation import Operation
from onceward.runtime.threads import run
from tests.integration.deployments import by_number, by_number_and_sum, by_reordered, warnings


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/once.db"


def deployed_table(store: Any, *functions: Any, fields: dict[str, Any] | None = None) -> None:
    """Run one process that declares the operation in a table, and decorates these functions with the operation."""
    table: Any = {"charge": {"key": "charge:{n}", **(fields or {})}}
    with Once(store, app="shop", operations=table) as once:
        for function in functions or (by_number,):
            once.operation("charge")(function)(n=1)


@pytest.mark.finding("N28")
@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"key": "order:{n}"}, "key=charge:{n} and is now declared with key=order:{n}: records under the old keys"),
        ({"window": "7d"}, "window=lasting 1w: records that are completed keep their old window"),
        ({"fingerprint": "none"}, "fingerprint=all and is now declared with fingerprint=none"),
        ({"after_crash": "park"}, "after_crash=park: it applies to existing keys from their next attempt"),
        ({"max_attempts": 3}, "max_attempts=0 and is now declared with max_attempts=3"),
        ({"lease": "5m"}, "lease=1m and is now declared with lease=5m"),
    ],
)
def test_a_changed_operation_of_a_table_is_logged_once(
    url: str, fields: dict[str, Any], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    deployed_table(url)
    deployed_table(url)
    assert warnings(caplog) == []
    deployed_table(url, fields=fields)
    [line] = warnings(caplog)
    assert line.startswith("shop/charge was declared with")
    assert said in line
    deployed_table(url, fields=fields)
    assert len(warnings(caplog)) == 1, "the next process finds the new declaration"


@pytest.mark.finding("N28")
def test_a_changed_operation_of_a_file_is_logged(url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "onceward.toml"
    for window in ("7d", "30d"):
        file.write_text(f'[operations.charge]\nkey = "charge:{{n}}"\nwindow = "{window}"\n')
        with Once(url, app="shop", operations=file) as once:
            once.operation("charge")(by_number)(1)
    [line] = warnings(caplog)
    assert "window=lasting 1w and is now declared with window=lasting 4w2d" in line


@pytest.mark.finding("N28")
async def test_an_async_client_compares_operations_of_a_table(url: str, caplog: pytest.LogCaptureFixture) -> None:
    async def charge(n: int) -> None: ...

    for key in ("charge:{n}", "order:{n}"):
        async with AsyncOnce(url, app="shop", operations={"charge": {"key": key}}) as once:
            await once.operation("charge")(charge)(1)
    assert len(warnings(caplog)) == 1


def test_functions_that_share_an_operation_of_a_table_do_not_count_as_a_change(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    shared = {"fingerprint": ["n"]}
    for _ in range(2):
        deployed_table(url, by_number, by_number_and_sum, by_reordered, fields=shared)
        deployed_table(url, by_number_and_sum, fields=shared)
    for _ in range(2):
        with Once(url, app="shop", operations={"mail": {"key": "mail:{n}"}}) as once:
            once.operation("mail")(by_number)(1)
            once.operation("mail", lease="5m")(by_number_and_sum).outcome(1)
    assert warnings(caplog) == []


def by_number_last(note: str, n: int) -> None: ...


MAIL: Any = {"mail": {"key": "mail:{n}", "window": "7d"}}


def web(store: Any, table: Any = MAIL) -> None:
    """Run a process that sends the welcome mail."""
    with Once(store, app="shop", operations=table) as once:
        once.operation("mail")(by_number).outcome(n=1, note="welcome")


def worker(store: Any, table: Any = MAIL) -> None:
    """Run a process that sends the reminder, which has other parameters and settings."""
    with Once(store, app="shop", operations=table, after_crash="park", lease="5m") as once:
        once.operation("mail", max_attempts=3, fingerprint=["note"])(by_number_last).outcome(note="reminder", n=1)


@pytest.mark.finding("N28")
def test_processes_with_different_functions_of_one_operation_of_a_table_are_no_change(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        web(url)
        worker(url)
    assert warnings(caplog) == []


@pytest.mark.finding("N28")
@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ({"key": "mail:{n}"}, {"key": "letter:{n}"}, "key=mail:{n} and is now declared with key=letter:{n}"),
        ({"window": "7d"}, {"window": "30d"}, "window=lasting 1w and is now declared with window=lasting 4w2d"),
        ({}, {"window": "30d"}, "window=lasting 1d and is now declared with window=lasting 4w2d"),
        ({"window": "7d"}, {}, "window=lasting 1w and is now declared with window=lasting 1d"),
    ],
)
def test_a_changed_table_is_logged_by_processes_with_different_functions(
    url: str, before: dict[str, Any], after: dict[str, Any], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    earlier, later = ({"mail": {"key": "mail:{n}", **fields}} for fields in (before, after))
    for process in (web, worker):
        process(url, earlier)
    for process in (web, worker, web):
        process(url, later)
    [line] = warnings(caplog)
    assert said in line


@pytest.mark.finding("N28")
def test_a_key_of_another_parameter_at_the_same_position_of_another_function_is_a_change(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    for key, function in (("mail:{n}", by_number), ("mail:{note}", by_number_last)):
        with Once(url, app="shop", operations={"mail": {"key": key}}) as once:
            once.operation("mail")(function).outcome(n=1, note="welcome")
    [line] = warnings(caplog)
    assert "key=mail:{n} and is now declared with key=mail:{note}" in line


@pytest.mark.finding("N28")
def test_a_declaration_of_a_table_by_an_earlier_version_is_no_change(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def declared_earlier(operation: Operation) -> Any:
        operation.table_settings = None
        return msgspec.structs.replace(declaration_of(operation), compared=())

    declaration_of = compare_declarations.declaration_of
    with monkeypatch.context() as earlier:
        earlier.setattr(compare_declarations, "declaration_of", declared_earlier)
        worker(url)
    web(url)
    assert warnings(caplog) == []


@pytest.mark.finding("N28")
def test_the_window_of_a_client_is_stored_for_an_operation_of_a_table(url: str) -> None:
    with Once(url, app="shop", operations={"mail": {"key": "mail:{n}"}}, window="30d") as once:
        mail = once.operation("mail")(by_number)
        mail(1)
        assert str(run(declared_window(once.store, mail.key(1).scope.text))) == "lasting 4w2d"

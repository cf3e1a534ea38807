"""A deployment that declares an operation differently: the log says what happens to existing keys."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from onceward import AsyncOnce, Once
from onceward.administration.policy_text import declared_window
from onceward.client import compare_declarations
from onceward.operations.operation import Operation
from onceward.runtime.threads import run
from onceward.stores import MemoryStore
from tests.integration.deployments import by_number, by_number_and_sum, by_reordered, warnings


def deployed(store: Any, *, call: bool = True, **settings: Any) -> None:
    """Run one process that declares the operation like this."""
    with Once(store, app="shop") as once:

        @once(name="charge", **{"key": "charge:{n}", **settings})  # type: ignore[untyped-decorator]
        def charge(n: int, note: str = "") -> None: ...

        if call:
            charge(1)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/once.db"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"key": "order:{n}"}, "key=charge:{n} and is now declared with key=order:{n}: records under the old keys"),
        ({"window": "7d"}, "window=lasting 1w: records that are completed keep their old window"),
        (
            {"fingerprint": "none"},
            "fingerprint=all and is now declared with fingerprint=none: a delivery of an existing",
        ),
        ({"after_crash": "park"}, "after_crash=park: it applies to existing keys from their next attempt"),
        ({"max_attempts": 3}, "max_attempts=0 and is now declared with max_attempts=3: it applies to existing keys"),
        ({"lease": "5m"}, "lease=1m and is now declared with lease=5m: it applies to existing keys from their next"),
    ],
)
def test_a_changed_declaration_is_logged_once_with_its_consequence(
    url: str, settings: dict[str, Any], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    deployed(url)
    deployed(url)
    assert warnings(caplog) == []
    deployed(url, **settings)
    [line] = warnings(caplog)
    assert line.startswith("shop/charge was declared with")
    assert said in line
    deployed(url, **settings)
    assert len(warnings(caplog)) == 1, "the next process finds the new declaration"


def test_a_key_template_that_changes_within_one_process_is_logged(url: str, caplog: pytest.LogCaptureFixture) -> None:
    with Once(url, app="shop") as once:
        for key in ("charge:{n}", "charge:{n}", "order:{n}"):
            once(key=key, name="charge")(lambda n: None)(n=1)
    [line] = warnings(caplog)
    assert "is now declared with key=order:{n}" in line


def test_a_key_that_is_an_f_string_is_no_change(url: str, caplog: pytest.LogCaptureFixture) -> None:
    for first in (0, 10):
        with Once(url, app="shop") as once:
            for number in range(first, first + 3):
                once(key=f"charge:{number}", name="charge")(int)()
    assert warnings(caplog) == []


def test_an_operation_that_is_declared_after_the_first_call_is_compared_too(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    for window, text in (("7d", "lasting 1w"), ("7d", "lasting 1w"), ("30d", "lasting 4w2d")):
        with Once(url, app="shop") as once:
            once.run("first", str)

            @once(key="charge:{n}", name="charge", window=window)
            def charge(n: int) -> None: ...

            charge(1)
            assert str(run(declared_window(once.store, charge.key(1).scope.text))) == text
    [line] = warnings(caplog)
    assert "window=lasting 1w and is now declared with window=lasting 4w2d" in line


def test_an_operation_whose_tenants_are_set_per_call_is_compared(url: str, caplog: pytest.LogCaptureFixture) -> None:
    for key in ("charge:{n}", "order:{n}"):
        with Once(url, app="shop") as once:

            @once(name="charge", key=key, tenant="{shop}")
            def charge(n: int, shop: str) -> None: ...

            charge(1, "acme")
    [line] = warnings(caplog)
    assert "is now declared with key=order:{n}" in line


def test_an_operation_without_records_may_change(url: str, caplog: pytest.LogCaptureFixture) -> None:
    with Once(url, app="shop") as once:

        @once(name="charge", key="charge:{n}")
        def charge(n: int) -> None: ...

        charge(1)
        charge.forget(1)
        once.erase(scope="shop/charge", dry_run=False)
    deployed(url, key="order:{n}")
    assert warnings(caplog) == []


async def test_an_async_client_compares_too(url: str, caplog: pytest.LogCaptureFixture) -> None:
    for key in ("charge:{n}", "order:{n}"):
        async with AsyncOnce(url, app="shop") as once:

            @once(name="charge", key=key)
            async def charge(n: int) -> None: ...

            await charge(1)
    assert len(warnings(caplog)) == 1


def test_declarations_are_not_listed_among_the_records(url: str) -> None:
    deployed(url)
    with Once(url) as once:
        once.read("any")
        assert [scope for scope, _ in _counts(once)] == ["shop/charge"]


def _counts(once: Once) -> Any:
    from onceward.runtime.threads import run

    return run(once.store.counts(timeout=5))


def test_a_memory_store_keeps_no_declarations(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    deployed(store)
    assert store._entity_states == {}


def test_a_store_that_cannot_compare_does_not_hold_up_the_work(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from onceward.errors import StoreUnavailable
    from onceward.stores.sqlite import SQLiteStore

    async def fails(*_: object, **__: object) -> None:
        raise StoreUnavailable("too slow")

    monkeypatch.setattr(SQLiteStore, "read_latest", fails)
    deployed(url)


def test_a_function_that_is_decorated_for_each_request_is_compared_once(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[str] = []

    async def record(store: object, states: object, operations: Sequence[Operation]) -> None:
        compared.extend(str(one.policy.window) for one in operations)

    monkeypatch.setattr(compare_declarations, "compare", record)
    with Once(url, app="shop") as once:
        for window in ("7d", "7d", "7d", "30d"):
            once(key="charge:{n}", name="charge", window=window)(lambda n: n)(n=1)
    assert compared == ["lasting 1w", "lasting 4w2d"]


def by_renamed_number(order: int, note: str = "") -> None: ...


def by_item(order: dict[str, int]) -> None: ...


@pytest.mark.parametrize(
    ("before", "after", "call"),
    [
        ((by_number, {"key": "charge:{n}"}), (by_renamed_number, {"key": "charge:{order}"}), (1,)),
        ((by_number, {"key": "charge:{n}"}), (by_number, {"key": ["charge:{n}"]}), (1,)),
        ((by_item, {"key": "charge:{order.id}"}), (by_item, {"key": "charge:{order[id]}"}), ({"id": 1},)),
        ((by_number, {"key": ["charge:1"]}), (by_number, {"key": ["charge:2"]}), (1,)),
        (
            (by_number, {"key": "charge", "fingerprint": ["n", "note"]}),
            (by_number, {"key": "charge", "fingerprint": ["note", "n"]}),
            (1,),
        ),
    ],
)
def test_another_spelling_of_the_same_declaration_is_no_change(
    url: str, before: Any, after: Any, call: tuple[Any, ...], caplog: pytest.LogCaptureFixture
) -> None:
    for function, settings in (before, after):
        with Once(url, app="shop") as once:
            once(name="charge", **settings)(function)(*call)
    assert warnings(caplog) == []


@pytest.mark.parametrize(("key", "function"), [("charge:{note}", by_number), ("charge:{n}:{note}", by_number)])
def test_a_key_of_another_parameter_is_a_change(
    url: str, key: str, function: Any, caplog: pytest.LogCaptureFixture
) -> None:
    for template in ("charge:{n}", key):
        with Once(url, app="shop") as once:
            once(name="charge", key=template, fingerprint="none")(function)(1, "a")
    [line] = warnings(caplog)
    assert f"key=charge:{{n}} and is now declared with key={key}" in line


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (by_number, ""),
        (by_reordered, ""),
        (by_number_and_sum, "arguments=note and is now declared with arguments=cents, note"),
    ],
)
def test_a_new_parameter_that_changes_fingerprints_is_logged(
    url: str, function: Any, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    for each in (by_number, function):
        with Once(url, app="shop") as once:
            once(name="charge", key="charge:{n}")(each).outcome(n=1)
    assert [said in one for one in warnings(caplog)] == ([True] if said else [])


def test_functions_that_are_decorated_in_turn_are_not_compared_again(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []

    async def record(store: object, states: object, operations: Sequence[Operation]) -> None:
        compared.extend(str(one.policy.window) for one in operations)

    monkeypatch.setattr(compare_declarations, "compare", record)
    with Once(url, app="shop") as once:
        for window in ("7d", "30d", "7d", "30d"):
            once(key="charge:{n}", name="charge", window=window)(lambda n: n)(n=1)
        assert compared == ["lasting 1w", "lasting 4w2d"]
        for number in range(50):
            once(key=f"order:{number}:{{n}}", name="charge")(lambda n: n)(n=1)
    assert len(compared) < 20, "a template that differs in each call is not compared each time"

"""A deployment that declares an operation differently: the log says what happens to existing keys."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from onceward import AsyncOnce, Once, PayloadMismatch
from onceward.administration.policy_text import declared_window
from onceward.client import compare_declarations
from onceward.keys.key import Scope, make_key
from onceward.operations.operation import Operation
from onceward.protocol.operation_names import DECLARATION
from onceward.runtime.threads import run
from onceward.stores import MemoryStore


def deployed(store: Any, *, call: bool = True, **settings: Any) -> None:
    """Run one process that declares the operation like this."""
    with Once(store, app="shop") as once:

        @once(name="charge", **{"key": "charge:{n}", **settings})  # type: ignore[untyped-decorator]
        def charge(n: int, note: str = "") -> None: ...

        if call:
            charge(1)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if "is now declared with" in one.getMessage()]


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


def by_number(n: int, note: str = "") -> None: ...


def by_renamed_number(order: int, note: str = "") -> None: ...


def by_reordered(note: str = "", n: int = 1) -> None: ...


def by_number_and_sum(n: int, note: str = "", cents: int = 0) -> None: ...


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


def deployed_table(store: Any, *functions: Any, fields: dict[str, Any] | None = None, **choices: Any) -> None:
    """Run one process that declares the operation in a table, and decorates these functions with the operation."""
    table: Any = {"charge": {"key": "charge:{n}", **(fields or {})}}
    with Once(store, app="shop", operations=table) as once:
        for function in functions or (by_number,):
            once.operation("charge", **choices)(function)(n=1)


@pytest.mark.finding("N28")
@pytest.mark.parametrize(
    ("fields", "choices", "said"),
    [
        ({"key": "order:{n}"}, {}, "key=charge:{n} and is now declared with key=order:{n}: records under the old keys"),
        ({"window": "7d"}, {}, "window=lasting 1w: records that are completed keep their old window"),
        ({"fingerprint": "none"}, {}, "fingerprint=all and is now declared with fingerprint=none"),
        ({"after_crash": "park"}, {}, "after_crash=park: it applies to existing keys from their next attempt"),
        ({"max_attempts": 3}, {}, "max_attempts=0 and is now declared with max_attempts=3"),
        ({"lease": "5m"}, {}, "lease=1m and is now declared with lease=5m"),
    ],
)
def test_a_changed_operation_of_a_table_is_logged_once(
    url: str, fields: dict[str, Any], choices: dict[str, Any], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    deployed_table(url)
    deployed_table(url)
    assert warnings(caplog) == []
    deployed_table(url, fields=fields, **choices)
    [line] = warnings(caplog)
    assert line.startswith("shop/charge was declared with")
    assert said in line
    deployed_table(url, fields=fields, **choices)
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


FIRST_SECRET, SECOND_SECRET = b"first secret key of 26 byt", b"second secret key of 27 byt"


def deployed_with_secret(store: Any, secret: bytes | None, **settings: Any) -> None:
    """Run one process that declares the operation in a client with this fingerprint_key."""
    with Once(store, app="shop", fingerprint_key=secret) as once:
        once(name="charge", **{"key": "charge:{n}"} | settings)(by_number).outcome(n=1)


def stored_declaration(url: str) -> bytes:
    with Once(url) as once:
        once.read("any")
        id = make_key(Scope("shop", DECLARATION), "shop/charge").id
        states = once.store.latest
        assert states is not None
        [state] = run(states.read_latest([id], timeout=5))
        assert state is not None
        assert state.value is not None
        return state.value


@pytest.mark.finding("N28")
@pytest.mark.parametrize(
    ("secrets", "said"),
    [
        ((FIRST_SECRET, SECOND_SECRET), "fingerprint_key=<secret> and is now declared with fingerprint_key=<another"),
        ((None, FIRST_SECRET), "fingerprint_key=none and is now declared with fingerprint_key=<secret>: until their"),
        ((FIRST_SECRET, None), "fingerprint_key=<secret> and is now declared with fingerprint_key=none: until their"),
    ],
)
@pytest.mark.parametrize("template", ["charge:{n}", None])  # None: a consumer would use the message id
def test_a_changed_fingerprint_key_is_logged_once(
    url: str, secrets: tuple[bytes | None, bytes | None], said: str, template: str, caplog: pytest.LogCaptureFixture
) -> None:
    before, after = secrets
    for _ in range(2):
        deployed_with_secret(url, before, key=template)
    assert warnings(caplog) == []
    deployed_with_secret(url, after, key=template)
    [line] = warnings(caplog)
    assert said in line
    assert "refused as mismatches, even if their payload is the same" in line
    deployed_with_secret(url, after, key=template)
    assert len(warnings(caplog)) == 1, "the next process finds the new declaration"


@pytest.mark.finding("N28")
def test_a_changed_fingerprint_key_of_a_table_is_logged(url: str, caplog: pytest.LogCaptureFixture) -> None:
    for key in (FIRST_SECRET, SECOND_SECRET):
        with Once(url, app="shop", operations={"charge": {"key": "charge:{n}"}}, fingerprint_key=key) as once:
            once.operation("charge")(by_number).outcome(1)
    [line] = warnings(caplog)
    assert "fingerprint_key=<another secret>" in line


@pytest.mark.parametrize("settings", [{"fingerprint": "none"}, {"key": "charge:{n}:{note}"}])
def test_a_fingerprint_key_without_fingerprints_may_change(
    url: str, settings: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    for key in (FIRST_SECRET, SECOND_SECRET):
        with Once(url, app="shop", fingerprint_key=key) as once:
            once(name="charge", **{"key": "charge:{n}", **settings})(by_number)(1, "a")
    assert warnings(caplog) == []


@pytest.mark.finding("N28")
def test_a_stored_declaration_does_not_reveal_the_fingerprint_key(url: str, caplog: pytest.LogCaptureFixture) -> None:
    deployed_with_secret(url, FIRST_SECRET)
    stored = msgspec.json.decode(stored_declaration(url))
    shown = stored["fingerprint_key"]
    assert len(shown) == 4, "so short that many keys have the same value"
    assert shown not in (FIRST_SECRET.hex()[:4], hashlib.sha256(FIRST_SECRET).hexdigest()[:4])
    deployed_with_secret(url, SECOND_SECRET)
    [line] = warnings(caplog)
    assert shown not in line
    assert msgspec.json.decode(stored_declaration(url))["fingerprint_key"] not in (shown, "none", "")


@pytest.mark.finding("N28")
def test_a_declaration_of_an_earlier_version_has_no_fingerprint_key(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr(compare_declarations, "fingerprint_key_id", lambda _: "")
        earlier.setattr(compare_declarations, "NO_KEY", "")
        deployed_with_secret(url, FIRST_SECRET)
    deployed_with_secret(url, SECOND_SECRET)
    assert warnings(caplog) == []
    deployed_with_secret(url, FIRST_SECRET)
    assert len(warnings(caplog)) == 1


@pytest.mark.finding("N28")
def test_a_mismatch_says_that_the_fingerprint_key_may_have_changed(url: str, caplog: pytest.LogCaptureFixture) -> None:
    deployed_with_secret(url, FIRST_SECRET)
    with Once(url, app="shop", fingerprint_key=SECOND_SECRET) as once:
        charge = once(name="charge", key="charge:{n}")(by_number)
        with pytest.raises(PayloadMismatch, match="fingerprint_key has changed"):
            charge(n=1)
    assert any("another payload" in one and "fingerprint_key has changed" in one for one in caplog.messages)

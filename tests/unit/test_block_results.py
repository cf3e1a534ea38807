"""Results of `with once.claim(key)` blocks, and results that a person supplies, keep their type."""

from __future__ import annotations

import dataclasses
import sys
import types
from decimal import Decimal
from typing import Any

import pytest

from onceward import AlreadyDone, ConfigurationError, applied
from onceward.errors import ResultCorrupt, ResultNotStored
from onceward.results.value_type import imported_class
from tests.clients import SyncClient
from tests.unit.decorating import backend
from tests.unit.result_classes import Level, Mode, OrderLine

__all__ = ["backend"]

LINE = OrderLine("s1", Decimal("1.50"), ("a",))


def done_value(client: SyncClient, key: str, **settings: Any) -> Any:
    with pytest.raises(AlreadyDone) as caught, client.claim(key, **settings):
        pytest.fail("the block must not run again")
    return caught.value.value


@pytest.mark.finding("N14")
@pytest.mark.parametrize("value", [LINE, Mode.RED, Level.LOW, [LINE, {"x": LINE}], {"plain": 1}], ids=repr)
@pytest.mark.parametrize("settings", [{}, {"type": OrderLine | Mode | Level | list[OrderLine] | dict[str, Any]}])
def test_a_block_returns_its_result_with_its_class(client: SyncClient, value: Any, settings: Any) -> None:
    with client.claim("k", **settings) as claim:
        claim.complete(value)
    found = done_value(client, "k", **settings)
    assert (found, type(found)) == (value, type(value))
    assert client.read("k").value == value


@pytest.mark.finding("N14")
def test_a_declared_type_accepts_no_other_class(client: SyncClient) -> None:
    with client.claim("k") as claim:
        claim.complete(LINE)
    with pytest.raises(ResultCorrupt, match="OrderLine"), client.claim("k", type=Mode):
        pytest.fail("the block must not run again")
    with client.claim("other", type=Mode) as claim:
        claim.complete(LINE)
    [event] = client.events_named("result_not_stored")
    assert "OrderLine" in event.reason


@pytest.mark.finding("N14")
def test_a_class_that_a_replay_could_not_find_is_declared_or_not_stored(client: SyncClient) -> None:
    @dataclasses.dataclass
    class Local:
        x: int

    with client.claim("k") as claim:
        claim.complete(Local(1))
    [event] = client.events_named("result_not_stored")
    assert "cannot be found by its name" in event.reason
    with pytest.raises(AlreadyDone, match=r"was not stored.*Local"), client.claim("k"):
        pytest.fail("the block must not run again")
    with client.claim("declared", type=Local) as claim:
        claim.complete(Local(1))
    assert done_value(client, "declared", type=Local) == Local(1)


@pytest.mark.finding("N14")
def test_a_process_without_the_class_learns_that_the_work_is_done(client: SyncClient) -> None:
    module = types.ModuleType("a_module_of_another_process")
    sys.modules[module.__name__] = module
    exec("import dataclasses\n@dataclasses.dataclass\nclass Receipt:\n    id: int", vars(module))
    try:
        with client.claim("k") as claim:
            claim.complete(module.Receipt(7))
    finally:
        del sys.modules[module.__name__]
    with pytest.raises(AlreadyDone, match=r"a_module_of_another_process:Receipt.*pass type=") as caught:
        client.claim("k").__enter__()
    assert (caught.value.value, caught.value.stored) == (None, False)
    assert done_value(client, "k", type=module.Receipt) == module.Receipt(7)


@pytest.mark.finding("N14")
@pytest.mark.parametrize("name", ["os:system", "os.path:join", "no_such_module:X", "tests", ":", "sys:modules.x"])
def test_a_stored_name_is_looked_up_only_among_imported_classes(name: str) -> None:
    assert imported_class(name) is None


def receipt_of(line: Any) -> OrderLine:
    raise TimeoutError


@pytest.mark.finding("N15")
def test_resolve_stores_a_value_of_the_declared_type(client: SyncClient) -> None:
    work = client(name="receipt", key="{line}", after_crash="park")(receipt_of)
    for key, named in ((work.key(1), {}), ("2", {"name": "receipt"})):
        assert work.outcome(key if isinstance(key, str) else 1).kind == "parked"
        client.resolve(key, applied(LINE), **named)
    assert [work(1), work(2)] == [LINE, LINE]
    assert client.read("2", name="receipt").value == LINE


@pytest.mark.finding("N15")
@pytest.mark.parametrize("by", ["client", "function"])
def test_resolve_refuses_a_value_of_another_type_and_changes_nothing(client: SyncClient, by: str) -> None:
    work = client(name="receipt", key="{line}", after_crash="park")(receipt_of)
    work.outcome(1)
    with pytest.raises(ConfigurationError, match=r"nothing was changed: result: it is dict.*OrderLine"):
        if by == "client":
            client.resolve(work.key(1), applied({"sku": "s1"}))
        else:
            client.wait(work.resolve(applied({"sku": "s1"}), 1))
    assert work.read(1).state == "PARKED"


@pytest.mark.finding("N15")
def test_resolve_without_a_value_tells_later_calls_so(client: SyncClient) -> None:
    work = client(name="receipt", key="{line}", after_crash="park")(receipt_of)
    work.outcome(1)
    client.resolve(work.key(1), applied())
    with pytest.raises(ResultNotStored, match=r"an operator resolved it without a value .*pass the value to applied"):
        work(1)

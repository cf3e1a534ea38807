"""What a decorated function looks like from outside, and what is refused while decorating."""

from __future__ import annotations

import asyncio
import functools
import gc
import inspect
import pickle
import weakref
from typing import Any

import pytest

from onceward import AsyncOnce, ConfigurationError, Once
from onceward.stores import MemoryStore
from tests.clients import SyncClient
from tests.unit.decorating import backend, decorated

__all__ = ["backend"]  # fixtures, imported here so that pytest finds them


# ── from outside it is the function ──


def test_name_docstring_and_signature_are_the_functions(client: SyncClient) -> None:
    def charge(self: Any, order: str, amount: int = 1) -> str:
        """Take the money."""
        return order

    class Till:
        once = decorated(client, charge, key="{order}")

    for each in (Till.once, Till().once):
        assert (each.__name__, each.__doc__, each.__module__) == ("charge", "Take the money.", __name__)
        assert each.__wrapped__.__name__ == "charge"
    assert str(inspect.signature(Till.once)) == "(self: 'Any', order: 'str', amount: 'int' = 1) -> 'str'"
    assert str(inspect.signature(Till().once)) == "(order: 'str', amount: 'int' = 1) -> 'str'"
    assert "charge" in repr(Till.once)


@pytest.mark.finding("N12")
@pytest.mark.filterwarnings("ignore:'asyncio.iscoroutinefunction' is deprecated:DeprecationWarning")
def test_frameworks_see_which_functions_are_async() -> None:
    async def work(x: int, *, y: int = 1) -> None: ...
    def plain(x: int, *, y: int = 1) -> None: ...

    once = Once(MemoryStore())

    class Service:
        method = once(key="{x}")(work)
        plain_method = once(key="{x}")(plain)

    for is_async in (asyncio.iscoroutinefunction, inspect.iscoroutinefunction):
        for marked in (AsyncOnce(MemoryStore())(work), once(work), Service().method, functools.partial(once(work), 1)):
            assert is_async(marked)
            assert "y: 'int' = 1" in str(inspect.signature(marked))
        for unmarked in (once(plain), Service().plain_method, functools.partial(once(plain), 1)):
            assert not is_async(unmarked)


once_by_name = Once("memory://")


@once_by_name
def by_name(x: int) -> int:
    return x


class Service:
    @once_by_name(key="{x}")
    def handle(self, x: int) -> int:
        return x


def test_a_decorated_function_is_pickled_by_name_like_any_other() -> None:
    assert pickle.loads(pickle.dumps(by_name)) is by_name
    assert pickle.loads(pickle.dumps(Service().handle))(4) == 4


# ── settings that cannot work are refused while decorating ──


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"key": "mail:{prospect}"}, r"names 'prospect', which is not a parameter.*order, amount"),
        ({"key": ["a:{order}", "b:{nothing}"]}, "'nothing'"),
        ({"key": "mail:{order!r}"}, "a key consists of values"),
        ({"key": "mail:{order"}, "is invalid"),
        ({"key": "mail:{}"}, "that is not a parameter"),
        ({"key": 7}, "key= cannot be int"),
        ({"key": lambda customer: customer}, "does not fit"),
        ({"key": ""}, "template of a key is empty"),
        ({"tenant": "{org}"}, "'org'"),
        ({"tenant": ["{order}", "{amount}"]}, "tenant= takes a template or a callable"),
        ({"fingerprint": ["amout"]}, r"fingerprint names 'amout'.*order, amount"),
        ({"on_runing": "skip"}, "there is no setting 'on_runing'"),
        ({"kye": "a"}, "there is no setting 'kye' → did you mean 'key'"),
        ({"tennant": "a"}, "did you mean 'tenant'"),
        ({"lease": "1ms"}, "a lease of 1ms cannot work"),
    ],
)
def test_choices_that_cannot_work_are_refused_while_decorating(client: SyncClient, settings: Any, says: str) -> None:
    def charge(order: str, amount: int = 1) -> str:
        return order

    with pytest.raises(ConfigurationError, match=says):
        client(**settings)(charge)


@pytest.mark.rival(6)
def test_functions_that_yield_are_refused_because_they_work_later() -> None:
    def later() -> Any:
        yield 1

    async def later_still() -> Any:
        yield 1

    once = Once(MemoryStore())
    for fn in (later, later_still):
        with pytest.raises(ConfigurationError, match="is a generator"):
            once(fn)
    with pytest.raises(ConfigurationError):
        AsyncOnce(MemoryStore())(later_still)


@pytest.mark.rival(6)
def test_sync_and_async_clients_refuse_each_others_functions() -> None:
    async def work() -> int:
        return 1

    def plain() -> int:
        return 1

    once = Once(MemoryStore())
    with pytest.raises(ConfigurationError, match="AsyncOnce"):
        _ = once.run("k", work)
    with pytest.raises(ConfigurationError, match="AsyncOnce"):
        _ = once.run("k", functools.partial(work))
    with pytest.raises(ConfigurationError, match="or use Once"):
        AsyncOnce(MemoryStore())(plain)  # type: ignore[arg-type]  # that is the point


def test_the_sync_client_refuses_an_async_function_that_the_async_client_has_run() -> None:
    """Refused before the claim: a function that a sync call cannot await must not use up an attempt or park a key."""

    async def work() -> int:
        return 1

    once = Once(MemoryStore(), after_crash="park")
    assert asyncio.run(once.aio.run("a", work)) == 1
    with pytest.raises(ConfigurationError, match="cannot await"):
        once.run("b", work)  # type: ignore[unused-coroutine]  # that is the point
    assert once.read("b") is None
    once.close()


@pytest.mark.rival(6)
def test_a_coroutine_is_never_taken_for_the_result() -> None:
    async def work() -> int:
        return 1

    def hidden() -> Any:
        return work()

    once = Once(MemoryStore())
    outcome = once.outcome("k", hidden)
    assert outcome.kind == "failed"
    with pytest.raises(ConfigurationError, match="AsyncOnce"):
        outcome.unwrap()


async def test_async_once_takes_a_plain_function_that_gives_a_value() -> None:
    """Failing after its effect would run it twice."""
    effects: list[int] = []

    def plain() -> Any:
        effects.append(1)
        return 5

    once = AsyncOnce(MemoryStore())
    assert [await once.run("k", plain), await once.run("k", plain)] == [5, 5]
    assert effects == [1]
    await once.close()


# ── what was run under a given key ──


def test_a_function_that_was_run_is_not_kept_nor_what_it_holds() -> None:
    """A program that runs a new function for each message must not grow with them."""
    once = Once(MemoryStore())

    def ran(number: int) -> weakref.ref[Any]:
        def work() -> int:
            return number

        assert once.run(number, work) == once.run(number, work) == number
        return weakref.ref(work)

    gone = [ran(number) for number in range(3)]
    gc.collect()
    assert [one() for one in gone] == [None] * 3


async def test_nor_is_one_that_was_awaited() -> None:
    async with AsyncOnce(MemoryStore()) as once:

        async def ran(number: int) -> weakref.ref[Any]:
            async def work() -> int:
                return number

            assert await once.run(number, work) == await once.run(number, work) == number
            return weakref.ref(work)

        gone = [await ran(number) for number in range(3)]
        gc.collect()
        assert [one() for one in gone] == [None] * 3


@pytest.mark.parametrize("client", [Once, AsyncOnce])
def test_a_key_that_is_passed_without_its_name_is_explained(client: type[Any]) -> None:
    with pytest.raises(ConfigurationError, match=r'decorates functions, not str → .*@once\(key="charge:\{order\}"\)'):
        client(MemoryStore())("order:{number}")

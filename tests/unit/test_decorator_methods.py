"""`@once` on methods, class methods and static methods."""

from __future__ import annotations

import functools
import gc
import subprocess
import sys
import weakref
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest

from onceward import ConfigurationError, InvalidKey, Once
from onceward.stores import MemoryStore
from tests.clients import SyncClient
from tests.unit.decorating import backend, decorated

__all__ = ["backend"]  # fixtures, imported here so that pytest finds them


def test_the_key_of_a_method_must_name_what_distinguishes_its_instances() -> None:
    once = Once(MemoryStore())

    class Mailer:
        def __init__(self, account: str) -> None:
            self.account = account

        @once(key="{self.account}:{n}")
        def send(self, n: int) -> str:
            return f"{n} of {self.account}"

        @once(name="write")
        def write(self, n: int, to: str) -> None: ...

    assert (Mailer("a").send(1), Mailer("b").send(1), Mailer("a").send(1)) == ("1 of a", "1 of b", "1 of a")
    with pytest.raises(InvalidKey) as refused:
        Mailer("a").write(1, "you")
    assert "no declared content" in str(refused.value)
    assert 'key="write:{self.account}:{n}:{to}"' in str(refused.value)


def test_a_method_is_bound_and_its_receiver_is_no_payload(client: SyncClient) -> None:
    effects: list[str] = []

    class Till:
        def take(self, order: str, amount: int = 1) -> str:
            effects.append(order)
            return f"{order} {amount}"

        once = decorated(client, take, key="take:{order}")

    till = Till()
    assert client.wait(till.once("A")) == "A 1"
    assert client.wait(Till().once("A", amount=1)) == "A 1"  # another till, the same work
    assert client.wait(Till.once(till, "A")) == "A 1"
    assert client.wait(till.once.outcome("A")).replayed
    assert till.once.key("A") == Till.once.key(till, "A")
    assert client.wait(till.once.read("A")).value == "A 1"
    assert client.wait(till.once.forget("A")) is True
    assert effects == ["A"]


def test_without_a_key_the_receiver_must_have_content(client: SyncClient) -> None:
    def take(self: Any, order: str) -> str:
        return order

    @dataclass
    class Account:
        number: int
        once = decorated(client, take)

    class Plain:
        once = decorated(client, take)

    assert Account(1).once.key("A") == Account(1).once.key("A")
    assert Account(1).once.key("A") != Account(2).once.key("A")
    with pytest.raises(InvalidKey, match=r"key=.*dataclass"):
        Plain().once.key("A")


def test_static_methods_are_functions(client: SyncClient) -> None:
    class Till:
        @staticmethod
        @functools.partial(decorated, client)
        def take(order: str) -> str:
            return order

    assert client.wait(Till.take("A")) == client.wait(Till().take("A")) == "A"
    assert client.wait(Till.take.outcome("A")).replayed


def test_class_methods_know_their_class(client: SyncClient) -> None:
    class Till:
        @classmethod
        @functools.partial(decorated, client)
        def make(cls, order: str) -> str:
            return f"{cls.__name__} {order}"

    class Desk(Till):
        pass

    assert [client.wait(Till.make("A")), client.wait(Till().make("A"))] == ["Till A"] * 2
    assert client.wait(Desk.make("A")) == "Desk A"  # the class is part of the default key
    # Since Python 3.13, @classmethod gives a bound method whose attributes are those of the function: no class in them.
    of_desk = (Desk,) if sys.version_info >= (3, 13) else ()
    assert client.wait(Desk.make.outcome(*of_desk, "A")).replayed
    assert client.wait(Desk.make.forget(*of_desk, "A"))
    assert [one.value for one in client.wait(client.once.map(Desk.make, ["A", "B"]))] == ["Desk A", "Desk B"]


@pytest.mark.skipif(sys.version_info < (3, 13), reason="there, @classmethod asks the function for its bound form")
def test_a_class_method_called_without_a_class_runs_nothing(client: SyncClient) -> None:
    class Till:
        @classmethod
        @functools.partial(decorated, client)
        def make(cls, order: str = "A") -> str:
            pytest.fail("nothing may run")

    for call in (Till.make.outcome, Till.make.read, Till.make.forget):
        for arguments in ((), ("B",)):
            with pytest.raises(ConfigurationError, match=r"Class\.method\.outcome\(Class"):
                client.wait(call(*arguments))


def test_a_parameter_called_cls_of_a_plain_function_is_any_parameter(client: SyncClient) -> None:
    def book(cls: str) -> str:
        return cls

    assert client.wait(decorated(client, book)("economy")) == "economy"


@pytest.mark.parametrize("kind", [staticmethod, classmethod])
def test_once_goes_below_staticmethod_and_classmethod(kind: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"put @{kind.__name__} above"):
        Once(MemoryStore())(kind(lambda x: x))


@pytest.mark.parametrize("way", ["call", "outcome"])
@pytest.mark.parametrize("ends", ["well", "failed", "parked"])
def test_the_arguments_of_a_call_are_released_with_it_without_a_garbage_collection(ends: str, way: str) -> None:
    once = Once(MemoryStore(), fingerprint="none", after_crash="park" if ends == "parked" else "rerun")

    class Order:
        @once(key="{number}")
        def charge(self, number: int) -> int:
            if ends != "well":
                raise ConnectionError(number)
            return number

    for number in (1, 2):  # the first one opens the store
        order = Order()
        gone = weakref.ref(order)
        gc.disable()
        try:
            with suppress(ConnectionError):
                assert order.charge.outcome(number) if way == "outcome" else order.charge(number)
            del order
            assert gone() is None
        finally:
            gc.enable()


AWAITED = """
import asyncio, gc, sys, weakref
from contextlib import suppress
from onceward import AsyncOnce
from onceward.stores import MemoryStore

ends, way = sys.argv[1:]


async def main() -> None:
    once = AsyncOnce(MemoryStore(), fingerprint="none", after_crash="park" if ends == "parked" else "rerun")

    class Order:
        @once(key="{number}")
        async def charge(self, number: int) -> int:
            if ends != "well":
                raise ConnectionError(number)
            return number

    for number in (1, 2):
        order = Order()
        gone = weakref.ref(order)
        gc.disable()
        with suppress(ConnectionError):
            assert await order.charge.outcome(number) if way == "outcome" else await order.charge(number)
        del order
        print(gone() is None)
    await once.close()


asyncio.run(main())
"""


@pytest.mark.parametrize("way", ["call", "outcome"])
@pytest.mark.parametrize("ends", ["well", "failed", "parked"])
def test_the_arguments_of_an_awaited_call_are_released_with_it_too(ends: str, way: str) -> None:
    """In a process of its own: in this one, tools that other tests have used may refer to exceptions."""
    done = subprocess.run(
        [sys.executable, "-c", AWAITED, ends, way], capture_output=True, text=True, check=True, timeout=200
    )
    assert done.stdout.split() == ["True", "True"]

"""Wrappers neither hide a capability of their store nor claim one that it lacks."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from onceward import ConfigurationError, Once
from onceward.protocol.capabilities import CAPABILITIES, Capabilities, DelegatedCapabilities
from onceward.protocol.ports import Store
from onceward.stores import MemoryStore
from onceward.stores.cached import CachedStore
from onceward.testing.history import MemoryLog, Recorder

OWN = {CachedStore: {"lookup"}, Recorder: {"lookup", "transactions"}}
"""What a wrapper implements itself: the cache looks up in itself first, the recorder cannot see a caller's commit."""

WRAPPERS: dict[type, Callable[[Any], Any]] = {
    CachedStore: lambda store: CachedStore(store, 10),
    Recorder: lambda store: Recorder(store, MemoryLog()),
}


def properties(kind: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(kind, lambda member: isinstance(member, property))}


class Offers(MemoryStore):
    """Has a different object for each capability."""


for _name in CAPABILITIES:
    setattr(Offers, _name, object())


def test_every_list_of_capabilities_is_complete() -> None:
    assert properties(Capabilities) == set(CAPABILITIES)
    assert properties(Store) == set(CAPABILITIES)
    assert {name for name in vars(DelegatedCapabilities) if name in CAPABILITIES} == set(CAPABILITIES)


@pytest.mark.finding("N31")
@pytest.mark.parametrize("kind", WRAPPERS)
@pytest.mark.parametrize("name", CAPABILITIES)
def test_a_wrapper_has_what_its_store_has(kind: type, name: str) -> None:
    store = Offers()
    seen, wanted = getattr(WRAPPERS[kind](store), name), getattr(store, name)
    assert (seen is wanted) is (name not in OWN[kind])


@pytest.mark.finding("N31")
@pytest.mark.parametrize("kind", WRAPPERS)
def test_a_wrapper_claims_nothing_that_its_store_lacks(kind: type) -> None:
    class Plain(MemoryStore): ...

    for name in CAPABILITIES:
        setattr(Plain, name, getattr(Capabilities, name))
    wrapper = WRAPPERS[kind](Plain())
    offered = {name for name in CAPABILITIES if getattr(wrapper, name) not in (None, 1)}
    assert offered == ({"lookup"} if kind is CachedStore else set())


def test_a_cached_store_looks_up_in_its_cache_without_asking_the_store() -> None:
    class Deaf(MemoryStore):
        @property
        def lookup(self) -> None:  # type: ignore[override]  # as a store on a server
            return None

    store = Deaf()
    once = Once(CachedStore(store, 10), fingerprint="none")
    assert [once.run("key", lambda: 5), once.run("key", lambda: 6)] == [5, 5]
    key = once.key("key").id
    look = once.store.lookup
    assert look is not None
    assert look(key, b"") is not None
    once.forget("key")
    assert look(key, b"") is None


def test_an_incomplete_store_is_refused_with_the_names_of_what_it_lacks() -> None:
    class Incomplete(Capabilities):
        name = "incomplete"

        async def claim(self, requests: object, *, timeout: float) -> list[object]:
            return []

    with pytest.raises(ConfigurationError, match="a store also needs audit, clone, close") as caught:
        Once(Incomplete())  # type: ignore[arg-type]
    hint = caught.value.hint or ""
    assert not {"claim", "lookup"} & set(hint.replace(",", "").split())

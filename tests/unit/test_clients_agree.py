"""One interface, sync and async: `AsyncOnce` has what `Once` has, with the same parameters and defaults."""

from __future__ import annotations

import asyncio
import inspect
import pickle
from pathlib import Path
from typing import Any

import pytest

from onceward import AsyncClaim, AsyncOnce, Claim, ConfigurationError, Once
from onceward.errors import Stopping
from onceward.latest.api import AsyncLatestState, LatestState
from onceward.locks.api import AsyncHeldLock, AsyncLock, HeldLock, Lock
from onceward.operations import AsyncFunction, Function
from onceward.operations.block import AsyncClaimBlock, ClaimBlock
from onceward.operations.transaction import AsyncWithin, Within
from onceward.results.encryption import AesGcm
from onceward.sagas.api import AsyncSaga, Saga
from onceward.schedules.api import AsyncScheduled, AsyncSlotClaim, AsyncTickBlock, Scheduled, SlotClaim, TickBlock
from onceward.stores import MemoryStore
from tests.clients import SyncClient

PAIRS = [
    (Once, AsyncOnce),
    (Function, AsyncFunction),
    (Claim, AsyncClaim),
    (ClaimBlock, AsyncClaimBlock),
    (Within, AsyncWithin),
    (Scheduled, AsyncScheduled),
    (SlotClaim, AsyncSlotClaim),
    (TickBlock, AsyncTickBlock),
    (Lock, AsyncLock),
    (HeldLock, AsyncHeldLock),
    (LatestState, AsyncLatestState),
    (Saga, AsyncSaga),
]
SYNC_ONLY = {"aio"}  # how a sync client reaches its async client
STORE_VERBS = {"run", "outcome", "map", "read", "forget", "resolve", "purge", "audit", "close"}
STORE_VERBS |= {"call", "complete", "complete_in", "annotate", "acquire", "release", "try_lock"}
STORE_VERBS |= {"apply", "apply_in", "apply_many", "apply_many_in", "delete", "get", "entities", "known"}
STORE_VERBS |= {"call", "complete", "complete_in", "annotate", "acquire", "release", "try_lock", "run_schedules"}
INTERNAL = {
    "claim_job",
    "codec",
    "compile_operation",
    "job",
    "job_maker",
}  # without a leading underscore, for our own modules
INTERNAL |= {"engine", "operation", "state_scope"}
STORE_VERBS |= {"recover", "retry", "migrate"}
SPECIAL = {"__call__", "__enter__", "__exit__", "__get__", "__init__"}


def names(cls: type) -> set[str]:
    found = {name for name in dir(cls) if not name.startswith("_")}
    found |= {name.replace("__a", "__") for name in dir(cls) if name in ("__aenter__", "__aexit__")}
    return found | {name for name in SPECIAL if name in dir(cls)}


def member(cls: type, name: str) -> Any:
    found = inspect.getattr_static(cls, name, None)
    return found if found is not None else inspect.getattr_static(cls, name.replace("__e", "__ae"), None)


def parameters(found: Any) -> list[tuple[str, Any, Any]]:
    return [(one.name, one.kind, one.default) for one in inspect.signature(found).parameters.values()]


@pytest.mark.mission("B7")
@pytest.mark.parametrize(("blocking", "awaited"), PAIRS)
def test_sync_and_async_classes_have_the_same_names(blocking: type, awaited: type) -> None:
    assert names(blocking) - SYNC_ONLY == names(awaited)


@pytest.mark.mission("B7")
@pytest.mark.parametrize(
    ("blocking", "awaited", "name"),
    [(one, other, name) for one, other in PAIRS for name in sorted(names(one) - SYNC_ONLY)],
)
def test_sync_and_async_methods_take_the_same_parameters(blocking: type, awaited: type, name: str) -> None:
    one, other = member(blocking, name), member(awaited, name)
    assert type(one) is type(other)
    if isinstance(one, property) or not callable(one):
        return
    assert parameters(one) == parameters(other)


@pytest.mark.parametrize(("blocking", "awaited"), PAIRS)
def test_what_talks_to_the_store_is_awaited_in_one_and_not_in_the_other(blocking: type, awaited: type) -> None:
    for name in names(blocking) - SYNC_ONLY:
        assert not inspect.iscoroutinefunction(member(blocking, name))
    for name in names(awaited) & STORE_VERBS:
        assert inspect.iscoroutinefunction(member(awaited, name)), name


@pytest.mark.parametrize("cls", [cls for pair in PAIRS for cls in pair])
def test_every_public_name_says_what_it_is(cls: type) -> None:
    public = {name for name in names(cls) if not name.startswith("_")} - INTERNAL
    assert [name for name in sorted(public) if not member(cls, name).__doc__] == []


# ── a client travels as its settings ──


@pytest.mark.parametrize("client", [Once, AsyncOnce])
def test_a_client_is_pickled_as_its_url_and_choices(client: Any, tmp_path: Path) -> None:
    once = client(f"sqlite:///{tmp_path}/a.db", app="shop", tenant="acme", cache=5, lease="1m", max_attempts=3)
    other = pickle.loads(pickle.dumps(once.using(wait="2s")))
    assert type(other) is client
    assert other.key("k") == once.key("k")
    assert other.store.name == once.store.name
    assert (other.policy.lease, other.policy.max_attempts, other.policy.wait) == (60_000_000, 3, 2_000_000)
    assert other.heartbeat is not once.heartbeat


def test_a_client_of_the_environment_is_pickled_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONCEWARD_STORE_URL", "memory://")
    data = pickle.dumps(Once())
    monkeypatch.delenv("ONCEWARD_STORE_URL")
    assert isinstance(pickle.loads(data).store, MemoryStore)


def test_what_must_not_travel_does_not() -> None:
    with pytest.raises(TypeError, match="create it from a URL"):
        pickle.dumps(Once(MemoryStore()))
    with pytest.raises(TypeError, match="the pickle would contain its keys"):
        pickle.dumps(Once("memory://", cipher=AesGcm({"k": b"0" * 32}, current="k")))


# ── the end ──


def test_close_may_be_called_again_and_nothing_is_claimed_after_it(client: SyncClient) -> None:
    assert client.run("k", len, [1]) == 1
    for _ in range(2):
        client.wait(client.once.close())
    with pytest.raises(Stopping):
        client.run("other", len, [1])


def test_a_client_that_was_never_used_closes(client: SyncClient) -> None:
    other = client.another()
    other.wait(other.once.close())


def test_a_client_is_a_block(tmp_path: Path) -> None:
    with Once(f"sqlite:///{tmp_path}/a.db") as once:
        assert once.run("k", len, [1]) == 1
    with pytest.raises(Stopping):
        once.run("k", len, [1])

    async def main() -> None:
        async def work() -> int:
            return 2

        async with AsyncOnce(f"sqlite:///{tmp_path}/a.db") as other:
            assert await other.run("other", work) == 2
        with pytest.raises(Stopping):
            await other.run("other", work)

    asyncio.run(main())


def test_a_closed_client_closes_its_async_client(tmp_path: Path) -> None:
    once = Once(f"sqlite:///{tmp_path}/a.db")

    @once
    async def work(x: int) -> int:
        return x

    assert asyncio.run(work(1)) == 1
    assert once.aio.engine is work.engine
    once.close()
    once.close()
    with pytest.raises(Stopping):
        asyncio.run(work(1))


def test_the_sync_and_async_clients_share_data_and_events() -> None:
    once = Once(MemoryStore())
    events: list[str] = []
    once.subscribe(lambda event: events.append(event.name))

    @once(key="k:{x}", name="same")
    def plain(x: int) -> str:
        return "plain"

    @once(key="k:{x}", name="same")
    async def awaited(x: int) -> str:
        return "awaited"

    assert plain(1) == asyncio.run(awaited(1)) == "plain"
    assert asyncio.run(awaited(2)) == plain(2) == "awaited"
    assert events == ["acquired", "completed", "skipped"] * 2
    once.close()


def test_a_choice_that_does_not_exist_is_refused_by_both() -> None:
    for client in (Once, AsyncOnce):
        with pytest.raises(ConfigurationError, match="no setting 'leese'"):
            client("memory://", leese="1m")  # type: ignore[call-arg]  # that is the point

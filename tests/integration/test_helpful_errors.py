"""Common mistakes: refused early, with the fix in the message."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import onceward
from onceward import (
    ConfigurationError,
    InvalidKey,
    NotAcquired,
    Once,
    OutcomeParked,
    RecordState,
    applied,
    inconclusive,
    not_applied,
)
from onceward.errors import StillRunning, Stopping
from onceward.stores import MemoryStore
from tests.cli.calls import until
from tests.clients import SyncClient


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[tuple[Once, sqlite3.Connection]]:
    once = Once(f"sqlite:///{tmp_path}/shop.db", lease="300s")
    once.read("open the store")
    connection = sqlite3.connect(tmp_path / "shop.db")
    connection.execute("CREATE TABLE charges (cents INTEGER)")
    yield once, connection
    connection.close()
    once.close(timeout=0)


def state_of(once: Once, key: str) -> RecordState | None:
    entry = once.read(key)
    return None if entry is None else entry.state


def test_a_transaction_that_outlives_its_claim_is_refused_immediately(shop: tuple[Once, sqlite3.Connection]) -> None:
    """Waiting for it would mean that the caller waits for itself, for a whole lease."""
    once, connection = shop
    began = time.monotonic()
    with (
        pytest.raises(ConfigurationError, match="in this order") as refused,
        connection,
        once.claim("order:8") as claim,
    ):
        connection.execute("INSERT INTO charges VALUES (500)")
        claim.complete_in(connection, "receipt")
    assert time.monotonic() - began < 60
    assert refused.value.key == "order:8"
    assert "`with once.claim(key) as claim, connection:`" in str(refused.value)
    assert connection.execute("SELECT * FROM charges").fetchall() == []
    until(lambda: state_of(once, "order:8") is RecordState.FAILED)  # not for a whole lease
    assert once.run("order:8", lambda: "in the right order") == "in the right order"


def test_a_transaction_that_outlives_its_claim_and_is_committed_counts(shop: tuple[Once, sqlite3.Connection]) -> None:
    once, connection = shop
    with pytest.raises(ConfigurationError, match="in this order"), once.claim("order:8") as claim:
        connection.execute("INSERT INTO charges VALUES (500)")
        claim.complete_in(connection, "receipt")
    assert once.heartbeat.delayed(), "it waits for the end of the transaction"
    connection.commit()
    until(lambda: not once.heartbeat.delayed())
    assert state_of(once, "order:8") is RecordState.COMPLETED
    assert once.counts.get("failed") is None


def test_an_error_inside_a_transaction_that_outlives_its_claim_stays_that_error(
    shop: tuple[Once, sqlite3.Connection],
) -> None:
    once, connection = shop
    with pytest.raises(ZeroDivisionError), connection, once.claim("order:8") as claim:
        claim.complete_in(connection, "receipt")
        raise ZeroDivisionError
    until(lambda: state_of(once, "order:8") is RecordState.FAILED)  # the rows are gone with the rollback
    entry = once.read("order:8")
    assert entry is not None
    assert entry.error.startswith("ZeroDivisionError")


def test_a_completion_that_was_rolled_back_is_a_failure_that_may_be_repeated(
    shop: tuple[Once, sqlite3.Connection],
) -> None:
    once, connection = shop
    with pytest.raises(onceward.errors.ClaimError, match="rolled back"), once.claim("order:8") as claim:
        claim.complete_in(connection, "receipt")
        connection.rollback()
    entry = once.read("order:8")
    assert entry is not None
    assert entry.state is RecordState.FAILED


def parked(client: SyncClient) -> Any:
    @client(name="wire", key="wire:{number}", after_crash="park")
    def wire(number: int) -> str:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        wire(1)
    return wire


def test_a_parked_record_is_resolved_by_its_function_and_arguments(client: SyncClient) -> None:
    wire = parked(client)
    with pytest.raises(OutcomeParked, match=r"fn\.resolve"):
        wire(1)
    client.wait(wire.fn.resolve(applied("sent"), 1))
    assert wire(1) == "sent"


@pytest.mark.parametrize("finding", ["applied", applied, True, None, {"value": "sent"}, inconclusive], ids=repr)
def test_an_unknown_finding_is_an_error_and_not_taken_for_abandon(client: SyncClient, finding: Any) -> None:
    wire = parked(client)
    with pytest.raises(ConfigurationError, match="pass applied"):
        client.wait(wire.fn.resolve(finding, 1))
    with pytest.raises(ConfigurationError, match="pass applied"):
        client.resolve("wire:1", finding, name="wire")
    assert client.read("wire:1", name="wire").state is RecordState.PARKED


def test_a_parked_record_is_found_by_what_the_log_line_shows_of_it(client: SyncClient) -> None:
    wire = parked(client)
    assert client.read("wire:1", name="wire").state is RecordState.PARKED
    client.resolve("wire:1", applied("sent"), name="wire")
    assert wire(1) == "sent"
    assert client.forget("wire:1", name="wire") is True
    assert wire.read(1) is None


def test_without_the_name_a_text_means_the_key_that_was_given(client: SyncClient) -> None:
    parked(client)
    assert client.read("wire:1") is None
    with pytest.raises(NotAcquired, match=r"fn\.key"):
        client.resolve("wire:1", not_applied)


def test_a_text_that_two_keys_share_is_not_guessed(client: SyncClient) -> None:
    @client(name="pay", key="pay:{shop}:{order}")
    def pay(shop: str, order: str) -> None: ...

    pay("a", "b:5")
    assert client.read("pay:a:b:5", name="pay").state is RecordState.COMPLETED
    pay("a:b", "5")
    with pytest.raises(InvalidKey, match="several records"):
        client.read("pay:a:b:5", name="pay")


@pytest.mark.parametrize("store", [Path("x.db"), 5, "", object()])
def test_an_invalid_store_is_refused_when_the_client_is_created(store: Any) -> None:
    with pytest.raises(ConfigurationError, match="sqlite:///"):
        Once(store)


def test_what_cannot_be_called_is_refused_before_anything_is_claimed() -> None:
    once = Once(MemoryStore())
    with pytest.raises(ConfigurationError, match="the function and its arguments separately"):
        once.run("k", print("x"))  # type: ignore[arg-type]  # the mistake
    assert once.read("k") is None


def test_a_closed_client_says_that_it_is_closed() -> None:
    once = Once(MemoryStore())
    once.close()
    with pytest.raises(Stopping, match="was closed"):
        once.run("k", str)


def test_the_error_for_an_argument_without_stable_content_names_the_function_and_the_fix() -> None:
    @Once(MemoryStore())(key="m:{number}")
    def mail(number: int, session: object) -> None: ...

    with pytest.raises(InvalidKey, match=r"mail.*session.*fingerprint=\["):
        mail(1, object())


def test_the_error_for_a_bare_string_as_fingerprint_asks_for_a_list() -> None:
    with pytest.raises(ConfigurationError, match="list of parameter names"):
        Once(MemoryStore(), fingerprint="number")  # a str is a collection of str, so no checker minds


def test_the_error_for_a_template_without_its_keyword_names_it() -> None:
    with pytest.raises(ConfigurationError, match="key="):
        Once(MemoryStore())("charge:{order}")  # type: ignore[call-overload]  # the mistake


def test_a_holder_that_may_be_dead_is_not_called_alive(client: SyncClient) -> None:
    client.silent_owner("k")
    with pytest.raises(StillRunning, match=r"if that process is dead, its lease expires in \d+"):
        client.another(wait="10ms").run("k", str)


def test_the_test_mode_is_there_without_an_import_of_its_own() -> None:
    with onceward.testing.disabled():
        assert Once(MemoryStore()).outcome("k", str).reason == "disabled"


def test_a_client_shows_where_it_stores(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    assert repr(Once(MemoryStore(), app="shop", tenant="acme")) == "<Once on memory, app='shop', tenant='acme'>"

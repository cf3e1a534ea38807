"""Within the caller's own Firestore transaction: claim and effect are committed together, or neither."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from google.api_core.exceptions import GoogleAPICallError
from google.cloud import firestore

from onceward import ConfigurationError, Failed, LeaseLost, Once, content_key
from onceward.errors import WrongRuntime
from onceward.latest import Ordering
from onceward.protocol.requests import ClaimRequest, Verdict
from onceward.runtime.threads import ThreadRuntime, run
from onceward.stores.firestore import FirestoreStore
from tests.clients import AsyncClient, Backend, Mode, SyncClient
from tests.firestore_backends import PROJECT, cache_of, document, firestore_client, named
from tests.moved_time import RealClock
from tests.servers.firestore import EMULATOR, shared
from tests.servers.firestore_tap import Tap, tapped


class CollectionBackend(Backend):
    """A collection, on the server's own clock."""

    def __init__(self, folder: Path) -> None:
        self.kind = "firestore"
        self.clock = RealClock()
        self.collection = named(folder, "joined")

    def open(self) -> FirestoreStore:
        return FirestoreStore(f"firestore://{PROJECT}/{self.collection}")


TRIES = 30  # the client's default of five is soon used up when two conflict on a slow emulator


class Bank:
    """A caller with its own transactions, sync or async, called as blocking code."""

    def __init__(self, client: SyncClient, collection: str) -> None:
        self.client = client
        self.accounts = f"{collection}-accounts"
        kind = firestore.Client if client.mode == "blocking" else firestore.AsyncClient
        self.firestore_client: Any = kind(project=PROJECT)
        self.bodies = 0

    def account(self, name: str = "anna") -> Any:
        return self.firestore_client.collection(self.accounts).document(name)

    def balance(self, name: str = "anna") -> int:
        found = document(self.accounts, name)
        return 0 if found is None else int(found["balance"])

    def run(self, key: str, work: Callable[[Any], Any], after: Callable[[Any], Any] = lambda _: None) -> Any:
        """Run `work` once under this key, and then `after`, in one transaction."""
        return self.transact(lambda tx: self.run_in(tx, key, work, after))

    def transact(self, body: Callable[[Any], Any]) -> Any:
        """Run the body in a transaction. With an async client, it returns an awaitable."""
        if self.client.mode == "blocking":
            return firestore.transactional(self._counted(body))(self.firestore_client.transaction(max_attempts=TRIES))

        async def whole() -> Any:
            return await firestore.async_transactional(self._counted(body))(
                self.firestore_client.transaction(max_attempts=TRIES)
            )

        return self.client.wait(whole())

    def _counted(self, body: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def counted(tx: Any) -> Any:
            self.bodies += 1
            return body(tx)

        return counted

    def run_in(self, tx: Any, key: str, work: Callable[[Any], Any], after: Callable[[Any], Any]) -> Any:
        once = self.client.once
        if self.client.mode == "blocking":
            with once.within(tx) as here:
                outcome = here.outcome(key, work, tx)
                after(tx)
            return outcome

        async def whole() -> Any:
            async def awaited(tx: Any) -> Any:
                return work(tx)

            awaited.__qualname__ = getattr(work, "__qualname__", "work")
            async with once.within(tx) as here:
                outcome = await here.outcome(key, awaited, tx)
                after(tx)
            return outcome

        return whole()


@pytest.fixture
def tap(monkeypatch: pytest.MonkeyPatch) -> Iterator[Tap]:
    with tapped(shared()) as (tap, address):
        monkeypatch.setenv(EMULATOR, address)
        yield tap


@pytest.fixture
def bank(tap: Tap, tmp_path: Path, mode: Mode) -> Iterator[Bank]:
    backend = CollectionBackend(tmp_path)
    settings: dict[str, Any] = {"fingerprint": "none"}  # a transaction is another object each time
    client = SyncClient(backend, **settings) if mode == "blocking" else AsyncClient(backend, **settings)
    yield Bank(client, backend.collection)
    client.close()


def pays(bank: Bank, amount: int = 100) -> Callable[[Any], int]:
    """Return a handler that adds to the account, so that the balance shows whether it ran twice."""

    def pay(tx: Any) -> int:
        tx.set(bank.account(), {"balance": firestore.Increment(amount)}, merge=True)
        return amount

    return pay


# ── together or not at all ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mission("E2")
def test_claim_and_effect_are_committed_together_and_a_duplicate_changes_nothing(tap: Tap, bank: Bank) -> None:
    with tap.billed() as bill:
        assert bank.run("payment 1", pays(bank)).executed
    assert bill()[:2] == (1, 2), "the record and the account: claim and result are one write"
    assert bank.client.read("payment 1").state == "COMPLETED"
    with tap.billed() as bill:
        outcome = bank.run("payment 1", pays(bank))
    assert (outcome.replayed, outcome.value, bank.balance()) == (True, 100, 100)
    assert bill()[:2] == (1, 0)


@pytest.mark.fault("F57")
def test_a_handler_that_raises_leaves_neither_and_the_transaction_stays_usable(bank: Bank) -> None:
    def fails(tx: Any) -> None:
        pays(bank)(tx)
        raise ValueError("no such account")

    def notes(tx: Any) -> None:
        tx.set(bank.account("log"), {"balance": 1})

    outcome = bank.run("payment 1", fails, after=notes)
    assert isinstance(outcome, Failed)
    assert (bank.balance(), bank.balance("log")) == (0, 1)
    assert bank.client.read("payment 1") is None
    assert bank.run("payment 1", pays(bank)).executed


@pytest.mark.fault("F57")
def test_a_rollback_after_the_claim_undoes_it(bank: Bank) -> None:
    def gives_up(_tx: Any) -> None:
        raise RuntimeError("changed our mind")

    with pytest.raises(RuntimeError, match="changed our mind"):
        bank.run("payment 1", pays(bank), after=gives_up)
    assert (bank.balance(), bank.client.read("payment 1")) == (0, None)


def test_the_client_may_run_the_body_again_and_the_effect_is_one(tap: Tap, bank: Bank) -> None:
    tap.abort("Commit", 2)
    assert bank.run("payment 1", pays(bank)).executed
    assert (bank.bodies, bank.balance()) == (3, 100)


@pytest.mark.fault("F54")
def test_a_commit_whose_answer_is_lost_is_not_applied_twice(tap: Tap, bank: Bank) -> None:
    """However the Firestore client handles that, the next call finds the record."""
    tap.lose("Commit")
    try:
        bank.run("payment 1", pays(bank))
    except (GoogleAPICallError, ValueError):
        assert bank.run("payment 1", pays(bank)).replayed
    assert bank.balance() == 100


@pytest.mark.rival(18)
@pytest.mark.mission("E2")
def test_one_of_two_concurrent_transactions_has_the_effect(bank: Bank) -> None:
    outcomes = bank.client.together(2, lambda: bank.run("payment 1", pays(bank)))
    assert sorted(type(one).__name__ for one in outcomes) == ["Executed", "Replayed"], outcomes
    assert bank.balance() == 100


def test_two_jobs_in_one_transaction_and_the_first_is_known_to_the_second(bank: Bank) -> None:
    def body(tx: Any) -> Any:
        if bank.client.mode == "blocking":
            return [bank.run_in(tx, key, pays(bank), lambda _: None) for key in ("one", "two", "one")]

        async def whole() -> list[Any]:
            return [await bank.run_in(tx, key, pays(bank), lambda _: None) for key in ("one", "two", "one")]

        return whole()

    one, two, again = bank.transact(body)
    assert (one.executed, two.executed, again.replayed) == (True, True, True)
    assert bank.balance() == 200


def test_the_handler_may_read_because_nothing_is_written_before_it_is_done(tmp_path: Path) -> None:
    backend = CollectionBackend(tmp_path)
    shared()
    with Once(backend.open()) as once:
        account = firestore_client().collection(f"{backend.collection}-accounts").document("anna")
        account.set({"balance": 5})

        @firestore.transactional
        def body(tx: Any) -> int:
            def doubles() -> int:
                balance: int = account.get(transaction=tx).get("balance")
                tx.update(account, {"balance": 2 * balance})
                return 2 * balance

            with once.within(tx) as here:
                return here.run("doubled", doubles)

        assert [body(firestore_client().transaction()) for _ in range(3)] == [10, 10, 10]
        assert account.get().to_dict() == {"balance": 10}


@pytest.mark.fault("F56")
def test_a_key_in_an_open_transaction_is_running_for_every_other_client(tmp_path: Path) -> None:
    backend = CollectionBackend(tmp_path)
    shared()
    other = backend.open()
    run(other.open(ThreadRuntime()))
    with Once(backend.open(), fingerprint="none") as once:
        key = once.key("k")
        request = ClaimRequest(key.id, key.scope.text, key.text, b"n" * 16, 600_000_000)

        @firestore.transactional
        def body(tx: Any) -> Any:
            with once.within(tx) as here:
                return here.run("k", lambda: run(other.claim([request], timeout=0.3))[0].verdict.value)

        assert body(firestore_client().transaction()) == "running"
    [after] = run(other.claim([request], timeout=20))
    assert after.verdict is Verdict.REPLAY
    run(other.close())


# ── a leased claim, completed in the transaction ────────────────────────────────────────────────────────────────────


@pytest.mark.fault("F31")
def test_a_leased_claim_is_completed_in_the_transaction_of_its_effect(bank: Bank) -> None:
    with bank.client.claim("payment 1") as claim:

        def body(tx: Any) -> Any:
            pays(bank)(tx)
            return claim.claim.complete_in(tx, 100)

        bank.transact(body)
    entry = bank.client.read("payment 1")
    assert (entry.state, entry.attempt, bank.balance()) == ("COMPLETED", 1, 100)


@pytest.mark.rival(1)
@pytest.mark.fault("F41")
def test_a_replaced_owner_cannot_complete_in_a_transaction(bank: Bank) -> None:
    late = bank.client.silent_owner("payment 1", lease="1s")
    stolen = threading.Event()

    def steals() -> None:
        bank.client.forget("payment 1", force=True)
        stolen.set()

    steals()

    def body(tx: Any) -> Any:
        pays(bank)(tx)
        return late.claim.complete_in(tx, 100)

    with pytest.raises(LeaseLost):
        bank.transact(body)
    assert (stolen.is_set(), bank.balance()) == (True, 0)


@pytest.mark.fault("F57")
def test_a_job_that_failed_is_not_written_down_with_the_next_one(tmp_path: Path) -> None:
    shared()
    with Once(CollectionBackend(tmp_path).open()) as once:

        def fails() -> None:
            raise ValueError("no such account")

        @firestore.transactional
        def body(tx: Any) -> None:
            with once.within(tx) as here:
                assert isinstance(here.outcome("one", fails), Failed)
                assert here.outcome("two", lambda: 2).executed

        body(firestore_client().transaction())
        assert once.read("one") is None, "otherwise a pending record would have no owner"
        assert once.read("two") is not None


@pytest.mark.fault("F31")
def test_a_claim_that_is_no_longer_cached_is_found_by_its_transaction(tmp_path: Path) -> None:
    """Its document is named after the content, which a settlement does not contain."""
    shared()
    with Once(CollectionBackend(tmp_path).open()) as once:
        key = content_key(b"a file")
        with once.claim(key) as claim:
            cache_of(once.store).drop(once.key(key).id)

            @firestore.transactional
            def body(tx: Any) -> None:
                claim.complete_in(tx, 3)

            body(firestore_client().transaction())
        assert once.outcome(key, lambda: 4).value == 3


# ── the state of entities ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mission("E2", "E3")
def test_an_event_and_the_callers_own_document_are_committed_together(tap: Tap, bank: Bank) -> None:
    services = bank.client.once.state("services")

    def deliver(minute: int, message: str) -> Any:
        def body(tx: Any) -> Any:
            ordering = Ordering(f"2026-03-01T08:{minute:02}:00Z", None, None, message)
            applied = services.apply_in(tx, "prod__api", ordering, {"minute": minute}, event_id=message)

            def row(outcome: Any) -> Any:
                if outcome.applied:
                    tx.set(bank.account(), {"balance": minute})
                return outcome

            if bank.client.mode == "blocking":
                return row(applied)

            async def whole() -> Any:
                return row(await applied)

            return whole()

        return bank.transact(body).reason

    with tap.billed() as bill:
        assert deliver(5, "m5") == "applied"
    assert bill()[:2] == (3, 4), "two marks, the state, and the caller's own document"
    assert [deliver(5, "m5"), deliver(4, "m4"), deliver(6, "m6")] == [
        "duplicate_message_noop", "stale_event_ignored", "applied",
    ]  # fmt: skip
    assert bank.balance() == 6


# ── what cannot be joined ───────────────────────────────────────────────────────────────────────────────────────────


def test_what_cannot_be_joined_says_why(tmp_path: Path) -> None:
    shared()
    with Once(CollectionBackend(tmp_path).open()) as once:

        def refused(transaction: Any) -> str:
            with pytest.raises(ConfigurationError) as caught, once.within(transaction):
                pass
            return str(caught.value)

        assert "not started" in refused(firestore_client().transaction())
        assert "not a Firestore transaction" in refused(object())
        begun = firestore_client().transaction(read_only=True)
        begun._begin()
        assert "read-only" in refused(begun)
        begun._rollback()
        elsewhere = firestore.Client(project=PROJECT, database="other").transaction()
        assert "cannot commit together" in refused(elsewhere)
        with pytest.raises(WrongRuntime), once.within(firestore.AsyncClient(project=PROJECT).transaction()):
            pass

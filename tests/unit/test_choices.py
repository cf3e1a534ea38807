"""The choices of an operation, as a caller meets them: running, done, failed, missing key, fingerprint, tenant."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from onceward import (
    AlreadyDone,
    AlreadyRunning,
    ConfigurationError,
    InvalidKey,
    MissingKey,
    Once,
    OutcomeParked,
    PayloadMismatch,
    PreviouslyFailed,
    RecordState,
)
from onceward.errors import StillRunning
from onceward.testing import FakeClock
from tests.clients import Backend, Pause, SyncClient
from tests.unit.other_worker import owned


@pytest.fixture
def backend(tmp_path: Path, clock: FakeClock) -> Backend:
    """Memory is enough here: nothing in this file depends on the store."""
    return Backend("memory", tmp_path, clock)


# ── while another worker is processing the key ──


def test_on_running_raise_raises_immediately(client: SyncClient) -> None:
    work = client(key="k:{x}", on_running="raise")(free)
    with owned(client, work.key(1)), pytest.raises(AlreadyRunning) as caught:
        work(1)
    assert not isinstance(caught.value, StillRunning)
    assert caught.value.key == "k:1"
    assert caught.value.retry_after is not None
    assert 590 < caught.value.retry_after <= 600
    assert caught.value.http_status == 409


@pytest.mark.mission("C2")
def test_on_running_skip_returns_none(client: SyncClient) -> None:
    work = client(key="k:{x}", on_running="skip")(free)
    with owned(client, work.key(1)):
        assert work(1) is None
        outcome = work.outcome(1)
    assert (outcome.kind, outcome.value, outcome.waited) == ("running", None, False)
    assert ":" in outcome.owner


def test_on_running_wait_gives_up_with_still_running(client: SyncClient) -> None:
    work = client(key="k:{x}", wait="30ms")(free)
    with owned(client, work.key(1)), pytest.raises(StillRunning) as caught:
        work(1)
    assert caught.value.key == "k:1"


def test_on_running_wait_gets_the_result_of_the_one_that_runs(client: SyncClient) -> None:
    pause, effects = Pause(), []

    @client(key="k:{x}")
    def work(x: int) -> str:
        effects.append(threading.get_ident())
        pause.here()
        return "done"

    first = client.start(work.outcome, 1)
    pause.reached()
    second = client.start(work.outcome, 1)
    pause.go()
    assert [first.result(60).kind, second.result(60).kind] == ["executed", "replayed"]
    assert second.result().value == "done"
    assert len(effects) == 1


# ── when it was done before ──


def test_on_done_replay_is_the_default(client: SyncClient) -> None:
    work = client(key="k:{x}")(free)
    assert (work.policy.on_running, work.policy.on_done) == ("wait", "replay")
    assert [work(1), work(1)] == ["free 1"] * 2


def test_on_done_raise_carries_the_result(client: SyncClient) -> None:
    work = client(key="k:{x}", on_done="raise")(free)
    assert work(1) == "free 1"
    with pytest.raises(AlreadyDone) as caught:
        work(1)
    assert (caught.value.value, caught.value.stored, caught.value.key) == ("free 1", True, "k:1")
    assert work.outcome(1).replayed  # an outcome is always a value


@pytest.mark.mission("C1")
def test_on_done_skip_returns_none(client: SyncClient) -> None:
    work = client(key="k:{x}", on_done="skip")(free)
    assert [work(1), work(1)] == ["free 1", None]
    assert work.outcome(1).value == "free 1"


@pytest.mark.parametrize("defaults", [{"on_running": "skip"}, {"on_done": "skip"}])
def test_the_advice_about_skip_names_what_was_skipped(defaults: dict[str, Any]) -> None:
    [(name, _)] = defaults.items()
    with pytest.raises(ConfigurationError, match=rf'@once\({name}="skip"\)'):
        Once("memory://", **defaults)


@pytest.mark.parametrize("defaults", [{"on_running": "skip"}, {"on_done": "skip"}])
def test_skip_is_declared_where_the_caller_sees_it(client: SyncClient, defaults: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="on the function itself"):
        client.another(**defaults)
    with pytest.raises(ConfigurationError, match="on the function itself"):
        client.once.using(**defaults)


# ── failures ──


class Flaky:
    """Raises the given errors in order, then returns."""

    def __init__(self, *errors: BaseException) -> None:
        self.errors = list(errors)
        self.calls = 0

    def __call__(self, x: int) -> str:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "done"


def flaky(client: SyncClient, *errors: BaseException, **settings: Any) -> tuple[Any, Flaky]:
    handler = Flaky(*errors)

    def work(x: int) -> str:
        return handler(x)

    return client(key="k:{x}", **settings)(work), handler


@pytest.mark.mission("B5")
@pytest.mark.rival(24)
def test_an_exception_reaches_the_caller_and_the_next_delivery_tries_again(client: SyncClient) -> None:
    error = ConnectionError("no route")
    work, handler = flaky(client, error)
    with pytest.raises(ConnectionError) as caught:
        work(1)
    assert caught.value is error
    entry = work.read(1)
    assert (entry.state, entry.error, entry.attempt) == (RecordState.FAILED, "ConnectionError: no route", 1)
    outcome = work.outcome(1)
    assert (outcome.kind, outcome.attempt, outcome.value, handler.calls) == ("executed", 2, "done", 2)


def test_the_outcome_of_a_failure_is_a_value_that_unwraps_to_the_exception(client: SyncClient) -> None:
    error = ValueError("bad")
    work, _ = flaky(client, error)
    outcome = work.outcome(1)
    assert (outcome.kind, outcome.error_type, outcome.error, outcome.final) == ("failed", "ValueError", "bad", False)
    assert outcome.exception is error
    with pytest.raises(ValueError, match="bad") as caught:
        outcome.unwrap()
    assert caught.value is error


@pytest.mark.parametrize(
    ("settings", "error", "final"),
    [
        ({"final": ValueError}, ValueError("x"), True),
        ({"final": (KeyError, ValueError)}, UnicodeError("x"), True),  # a subclass counts
        ({"final": ValueError}, KeyError("x"), False),
        ({"retry": ConnectionError}, ConnectionResetError("x"), False),
        ({"retry": ConnectionError}, ValueError("x"), True),  # all others are final
        ({"retry": (), "final": ()}, ValueError("x"), True),
        ({"retry": ConnectionError}, TimeoutError("x"), False),  # says nothing about the effect
        ({"final": Exception}, TimeoutError("x"), False),  # neither does a name as broad as this
        ({"final": TimeoutError}, TimeoutError("x"), True),  # unless it is named itself
        ({}, ValueError("x"), False),
    ],
)
def test_which_exceptions_are_final(
    client: SyncClient, settings: dict[str, Any], error: Exception, final: bool
) -> None:
    work, handler = flaky(client, error, **settings)
    assert work.outcome(1).final is final
    again = work.outcome(1)
    assert (again.kind, handler.calls) == (("failed", 1) if final else ("executed", 2))
    if final:
        with pytest.raises(PreviouslyFailed) as caught:
            again.unwrap()
        assert caught.value.retry_after is None
        assert (caught.value.error_type, caught.value.error_message) == (type(error).__name__, "x")


def test_a_final_failure_answers_for_the_window(client: SyncClient) -> None:
    work, handler = flaky(client, ValueError("x"), final=ValueError, window="1h")
    assert work.outcome(1).final
    client.clock.advance("59m")
    assert work.outcome(1).kind == "failed"
    client.clock.advance("2m")
    assert (work.outcome(1).kind, handler.calls) == ("executed", 2)


def test_max_attempts_are_used_up(client: SyncClient) -> None:
    work, handler = flaky(client, *[ConnectionError("x")] * 9, max_attempts=2)
    kinds = [(work.outcome(1).final, handler.calls) for _ in range(4)]
    assert kinds == [(False, 1), (True, 2), (True, 2), (True, 2)]
    with pytest.raises(PreviouslyFailed, match=r"attempt 2 failed with ConnectionError: x \(it will not be"):
        work(1)


def test_retry_delay_holds_off_the_next_attempt(client: SyncClient) -> None:
    work, handler = flaky(client, ConnectionError("x"), retry_delay=10)
    assert work.outcome(1).retry_after == pytest.approx(10)
    client.clock.advance(4)
    with pytest.raises(PreviouslyFailed) as caught:
        work(1)
    assert caught.value.retry_after == pytest.approx(6, abs=0.1)
    assert handler.calls == 1
    client.clock.advance(6)
    assert (work(1), handler.calls) == ("done", 2)


def test_retry_delay_may_grow_with_the_attempt(client: SyncClient) -> None:
    work, _ = flaky(client, *[ConnectionError("x")] * 3, retry_delay=lambda attempt: f"{2**attempt}s")
    delays = []
    for _ in range(3):
        delays.append(work.outcome(1).retry_after)
        client.clock.advance(delays[-1])
    assert delays == pytest.approx([2, 4, 8])
    assert work(1) == "done"


def test_not_applied_runs_again_where_unknown_would_park(client: SyncClient) -> None:
    work, _ = flaky(client, ConnectionRefusedError("x"), after_crash="park", not_applied=ConnectionRefusedError)
    assert work.outcome(1).kind == "failed"
    assert work(1) == "done"
    parked, handler = flaky(client, ConnectionResetError("x"), after_crash="park", name="other")
    assert parked.outcome(1).kind == "parked"
    with pytest.raises(OutcomeParked, match="ConnectionResetError: x"):
        parked(1)
    assert (parked.read(1).state, handler.calls) == (RecordState.PARKED, 1)


def test_work_whose_record_could_not_be_parked_does_not_claim_to_be(client: SyncClient) -> None:
    def forgotten_meanwhile(x: int) -> None:
        client.forget(str(x), name="work", force=True)
        raise TimeoutError

    work = client(name="work", key="{x}", after_crash="park")(forgotten_meanwhile)
    outcome = work.outcome(1)
    assert (outcome.kind, type(outcome.exception)) == ("failed", TimeoutError)
    assert [event.reason for event in client.events_named("lost")] == ["parking refused"]
    assert work.read(1) is None


# ── without a key ──


@pytest.mark.rival(30)
def test_a_missing_key_is_an_error_unless_declared(client: SyncClient) -> None:
    work = client(key="mail:{message_id}")(mail)
    for missing in (None, ""):
        with pytest.raises(MissingKey, match="message_id"):
            work(missing)


@pytest.mark.rival(30)
@pytest.mark.mission("C4")
def test_a_missing_key_may_run_each_time_and_loudly(client: SyncClient, caplog: pytest.LogCaptureFixture) -> None:
    work = client(key="mail:{message_id}", on_missing_key="run")(mail)
    with caplog.at_level(logging.ERROR, "onceward"):
        outcomes = [work.outcome(None), work.outcome(None)]
    assert [(one.kind, one.reason, one.value) for one in outcomes] == [("executed", "unprotected", None)] * 2
    assert [record.levelname for record in caplog.records] == ["ERROR"] * 2
    assert [event.reason for event in client.events_named("unprotected")] == ["no key"] * 2
    with pytest.raises(MissingKey):
        work.key(None)


def test_the_first_template_whose_fields_are_there_makes_the_key(client: SyncClient) -> None:
    def take(email: str | None, name: str, city: str) -> str:
        return name

    work = client(key=["import:{email}", "import:{name}:{city}"], fingerprint="none")(take)
    assert work.key("a@b", "A", "Rome").text == "import:a@b"
    assert work.key(None, "A", "Rome").text == "import:A:Rome"
    with pytest.raises(MissingKey):
        work(None, "A", "")


# ── fingerprint ──


def pay(order: str, amount: int, note: str = "") -> int:
    return amount


@pytest.mark.fault("F18")
def test_two_templates_that_make_one_key_of_two_payloads_are_a_mismatch(client: SyncClient) -> None:
    """Each template holds all arguments, but in another order: the key alone does not show which template made it."""

    class Tagged(str):
        __slots__ = ()
        id = "y"

    tagged = Tagged("x")
    work = client(name="two", key=["{a}:{b}:{a.id}", "{b}:{a}:{a}"])(lambda a, b: "paid")
    assert work.key(tagged, "y") == work.key("y", "x")
    assert work.outcome(tagged, "y").kind == "executed"
    outcome = work.outcome("y", "x")
    assert (outcome.kind, outcome.arguments) == ("mismatch", ("a", "b"))


def test_the_same_key_with_another_payload_is_a_mismatch_that_names_what_differs(client: SyncClient) -> None:
    work = client(key="pay:{order}")(pay)
    assert work("A", 1) == 1
    outcome = work.outcome("A", 2, note="x")
    assert (outcome.kind, outcome.arguments) == ("mismatch", ("amount", "note"))
    with pytest.raises(PayloadMismatch, match="differs in: amount, note") as caught:
        work("A", 2, note="x")
    assert (caught.value.arguments, caught.value.http_status) == (("amount", "note"), 422)
    assert work("A", 1) == 1


@pytest.mark.rival(5)
def test_a_payload_is_also_compared_while_it_runs_and_after_it_failed(client: SyncClient) -> None:
    work = client(key="pay:{order}")(pay)
    with client.claim(work.key("A", 1), payload={"amount": 1, "note": ""}):
        assert client.start(work.outcome, "A", 2).result(60).kind == "mismatch"
    with (
        pytest.raises(ZeroDivisionError),
        client.claim(work.key("B", 1), payload={"amount": 1, "note": ""}),
    ):
        raise ZeroDivisionError
    assert work.outcome("B", 2).arguments == ("amount",)
    assert work("B", 1) == 1


@pytest.mark.mission("C1")
def test_fingerprint_none_means_that_the_key_alone_is_the_identity(client: SyncClient) -> None:
    work = client(key="pay:{order}", fingerprint="none")(pay)
    assert [work("A", 1), work("A", 2)] == [1, 1]


def test_fingerprint_of_some_fields_looks_at_no_others(client: SyncClient) -> None:
    work = client(key="pay:{order}", fingerprint=["amount"])(pay)
    assert [work("A", 1, "first"), work("A", 1, "second")] == [1, 1]
    assert work.outcome("A", 2, "first").arguments == ("amount",)


# ── results that are not stored ──


def test_store_result_false_keeps_none_and_replays_none(client: SyncClient) -> None:
    work = client(key="k:{x}", store_result=False)(free)
    assert [work(1), work(1)] == ["free 1", None]
    outcome, entry = work.outcome(1), work.read(1)
    assert (outcome.replayed, outcome.stored, outcome.value) == (True, False, None)
    assert (entry.state, entry.stored, entry.value) == (RecordState.COMPLETED, False, None)


# ── tenants ──


@pytest.mark.parametrize("tenant", ["{org}", lambda org: org])
def test_tenants_never_see_each_others_results(client: SyncClient, tenant: Any) -> None:
    effects: list[str] = []

    @client(key="doc:{number}", tenant=tenant, fingerprint="none")
    def read(org: str, number: int) -> str:
        effects.append(org)
        return f"secret of {org}"

    assert [read("a", 1), read("b", 1), read("a", 1)] == ["secret of a", "secret of b", "secret of a"]
    assert effects == ["a", "b"]
    assert read.key("a", 1).scope.tenant == "a"


@pytest.mark.parametrize("org", [None, "", 7.0])
def test_there_is_no_anonymous_tenant(client: SyncClient, org: Any) -> None:
    work = client(key="doc:{number}", tenant="{org}")(tenanted)
    with pytest.raises(InvalidKey):
        work(org, 1)


def test_a_wrong_tenant_is_called_by_its_name(client: SyncClient) -> None:
    with pytest.raises(ConfigurationError, match=r"tenanted: the tenant template '\{nope\}' names 'nope'"):
        client(key="doc:{number}", tenant="{nope}")(tenanted)
    work = client(key="doc:{number}", tenant="{org}")(tenanted)
    with pytest.raises(MissingKey, match=r"tenanted: the tenant '\{org\}' has no value for org"):
        work(None, 1)


def test_using_gives_the_same_client_another_tenant(client: SyncClient) -> None:
    a, b = client.once.using(tenant="a"), client.once.using(tenant="b", lease="30s")
    assert a.key("k").id != b.key("k").id != client.once.key("k").id
    assert a.store is b.store is client.once.store
    assert (b.policy.lease, client.once.policy.lease) == (30_000_000, 600_000_000)
    with pytest.raises(ConfigurationError, match="no setting"):
        client.once.using(leese="1m")


def free(x: int) -> str:
    return f"free {x}"


def mail(message_id: str | None) -> None: ...


def tenanted(org: str, number: int) -> str:
    return org

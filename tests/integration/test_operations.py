"""Declared operations at work, on every store, sync and async: the flows that the seed documents describe."""

from __future__ import annotations

import logging
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from onceward import (
    AlreadyDone,
    AlreadyRunning,
    Failed,
    NotAcquired,
    Once,
    OutcomeParked,
    PayloadMismatch,
    PreviouslyFailed,
    RecordState,
    Replayed,
    current_async_claim,
    current_claim,
)
from tests.clients import GuardedFunction, Pause, SyncClient

OPERATIONS: dict[str, Any] = {
    "email": {
        "key": "email:{prospect_id}",
        "window": "24h",
        "lease": "300s",
        "fingerprint": "none",
        "on_running": "raise",
        "reasons": {"done": "already_emailed_today", "running": "send_in_progress", "executed": "sent"},
    },
    "daily": {"key": "email:{prospect_id}", "window": {"calendar": "Europe/Berlin"}, "fingerprint": "none"},
    "enrich": {
        "key": "enrich:{prospect_id}:{type}",
        "window": "24h",
        "window_from": "attempt",
        "on_running": "raise",
        "reasons": {"done": "enriched_recently", "failed": "tried_recently", "running": "enriching"},
    },
    "retried": {"key": "enrich:{prospect_id}:{type}", "window": "24h"},
    "careful": {"key": "{to}", "window": "24h", "window_from": "attempt", "after_crash": "park"},
    "reply": {"key": "reply:{message_id}", "window": "forever"},
    "health": {
        "key": "{env}__{service}__{message_id}",
        "window": "7d",
        "reasons": {"executed": "applied", "done": "duplicate_message_noop", "mismatch": "other_message_same_id"},
    },
    "wire": {"key": "wire:{order}", "after_crash": "park", "reasons": {"parked": "ask_the_bank"}},
}


@pytest.fixture
def declared(client: SyncClient) -> SyncClient:
    """The same client with the table."""
    return client.another(operations=OPERATIONS)


def by_name(client: SyncClient, name: str, work: Any, **choices: Any) -> GuardedFunction:
    return GuardedFunction(client, client.once.operation(name, **choices)(client.work(work)))


# ── C1: one e-mail a day ──


def send_with(client: SyncClient, sent: list[Any], pause: Pause | None = None) -> Any:
    """The seed's `sendEmail`: its answers contain the outcome's own reasons."""

    def send(prospect_id: int, text: str) -> None:
        if pause is not None:
            pause.here()
        sent.append((prospect_id, text))

    guarded = by_name(client, "email", send)

    def answer(prospect_id: int, text: str) -> dict[str, Any]:
        outcome = guarded.outcome(prospect_id, text)
        return {"sent": True} if outcome.executed else {"skipped": True, "reason": outcome.reason}

    return answer


@pytest.mark.mission("C1", "C9")
def test_a_prospect_gets_one_mail_in_24_hours_and_later_calls_get_the_reason(declared: SyncClient) -> None:
    sent: list[Any] = []
    send = send_with(declared, sent)
    assert send(1, "hello") == {"sent": True}
    assert send(1, "another text") == {"skipped": True, "reason": "already_emailed_today"}
    declared.clock.advance("23h59m")
    assert send(1, "tomorrow morning") == {"skipped": True, "reason": "already_emailed_today"}
    declared.clock.advance("1m")
    assert send(1, "a day later") == {"sent": True}
    assert [text for _, text in sent] == ["hello", "a day later"]


@pytest.mark.mission("C1")
def test_while_a_mail_is_being_sent_other_calls_get_the_declared_reason(declared: SyncClient) -> None:
    pause, sent = Pause(), []  # type: ignore[var-annotated]  # whatever is sent
    send = send_with(declared, sent, pause)
    sending = declared.start(send, 1, "hello")
    pause.reached()
    assert send(1, "again") == {"skipped": True, "reason": "send_in_progress"}
    pause.go()
    assert sending.result() == {"sent": True}
    assert len(sent) == 1


@pytest.mark.mission("C1")
def test_of_three_concurrent_mails_exactly_one_is_sent_by_the_table(declared: SyncClient) -> None:
    sent: list[Any] = []
    send = send_with(declared, sent)
    answers = declared.together(3, lambda: send(1, "hello"))
    assert answers.count({"sent": True}) == len(sent) == 1
    assert {answer.get("reason") for answer in answers} <= {None, "already_emailed_today", "send_in_progress"}


@pytest.mark.mission("C1", "C9")
@pytest.mark.rival(26)
def test_a_rolling_window_has_no_boundary_across_which_both_run(declared: SyncClient) -> None:
    """One minute before and after midnight: a fixed period lets both through, 24 hours do not."""
    rolling = by_name(declared, "email", lambda prospect_id: None)
    daily = by_name(declared, "daily", lambda prospect_id: None)
    declared.clock.advance("22h59m")  # 23:59 in Berlin
    assert rolling.outcome(1).executed
    assert daily.outcome(1).executed
    declared.clock.advance("2m")
    assert rolling.outcome(1).replayed
    assert daily.outcome(1).executed, "a calendar day is a different window with its own name"


# ── C6: a failed attempt counts as tried ──


@pytest.mark.mission("C6")
def test_an_enrichment_that_failed_was_tried_and_is_not_tried_again_for_a_day(declared: SyncClient) -> None:
    tried: list[tuple[int, str]] = []

    def enrich(prospect_id: int, type: str) -> str:
        tried.append((prospect_id, type))
        declared.clock.advance("1h")  # the window starts when the attempt starts
        if len(tried) == 1:
            raise TimeoutError("the directory does not answer")
        return "https://example.com"

    enriching = by_name(declared, "enrich", enrich)
    with pytest.raises(TimeoutError):
        enriching(1, "website")
    again = enriching.outcome(1, "website")
    assert isinstance(again, Failed)
    assert (again.reason, again.error_type) == ("tried_recently", "TimeoutError")
    assert enriching(1, "email") == "https://example.com", "another type is another enrichment"
    declared.clock.advance("21h59m")
    assert not enriching.outcome(1, "website").executed
    declared.clock.advance("1m")  # 24 h after the attempt began
    assert enriching.outcome(1, "website").executed
    assert tried == [(1, "website"), (1, "email"), (1, "website")]


@pytest.mark.mission("C6")
def test_from_the_attempt_means_from_its_claim_and_not_from_its_end(declared: SyncClient) -> None:
    def slow(prospect_id: int, type: str) -> str:
        declared.clock.advance("5h")
        declared.renew_leases()
        return "found"

    enriching, retried = by_name(declared, "enrich", slow), by_name(declared, "retried", slow)
    assert enriching.outcome(1, "website").executed
    declared.clock.advance("18h59m")
    assert enriching.outcome(1, "website").reason == "enriched_recently"
    declared.clock.advance("1m")
    assert enriching.outcome(1, "website").executed
    assert retried.outcome(1, "website").executed
    declared.clock.advance("23h")
    assert retried.outcome(1, "website").replayed, "the window starts at completion, five hours later"


@pytest.mark.mission("C6")
def test_two_enrichments_never_run_concurrently_and_a_retried_webhook_adds_nothing(declared: SyncClient) -> None:
    pause, data = Pause(), []

    def enrich(prospect_id: int, type: str) -> None:
        pause.here()
        data.append(prospect_id)

    enriching = by_name(declared, "enrich", enrich)
    first = declared.start(enriching.outcome, 1, "email")
    pause.reached()
    assert enriching.outcome(1, "email").reason == "enriching"
    pause.go()
    assert first.result().executed
    assert enriching.outcome(1, "email").reason == "enriched_recently"
    assert data == [1]


@pytest.mark.rival(24)
def test_unless_declared_otherwise_a_failed_delivery_is_not_marked_as_seen(declared: SyncClient) -> None:
    calls: list[str] = []

    def process(prospect_id: int, type: str) -> str:
        calls.append(type)
        if len(calls) == 1:
            raise ConnectionError("try again")
        return "done"

    retried = by_name(declared, "retried", process)
    with pytest.raises(ConnectionError):
        retried(1, "website")
    assert retried(1, "website") == "done"


def test_work_that_parks_after_crashes_also_parks_if_its_window_counts_from_the_attempt(declared: SyncClient) -> None:
    """Whether the mail was sent is unknown, and waiting a day does not change that."""

    def send(to: str) -> None:
        raise ConnectionError("was it sent?")

    careful = by_name(declared, "careful", send)
    with pytest.raises(ConnectionError):
        careful("ann")
    declared.clock.advance("48h")
    assert careful.read("ann").state is RecordState.PARKED


def enrichment(prospect_id: int, type: str) -> str:
    return "found"


def test_a_crash_is_not_a_failure_and_is_handled_by_after_crash(declared: SyncClient) -> None:
    key = declared.once.operation("enrich")(declared.work(enrichment)).key(1, "email")
    declared.silent_owner(key, lease="300s")
    declared.clock.advance("301s")
    outcome = by_name(declared, "enrich", enrichment).outcome(1, "email")
    assert (outcome.executed, outcome.attempt) == (True, 2)


# ── C8: the same key on every retry ──


@pytest.mark.mission("C8")
def test_a_paid_call_has_the_same_key_on_every_attempt_and_another_in_the_next_window(declared: SyncClient) -> None:
    keys: list[str] = []

    def charge(prospect_id: int, type: str) -> str:
        claim = current_async_claim() if declared.mode == "async" else current_claim()
        keys.append(claim.derived_key("charge"))
        if len(keys) == 1:
            raise ConnectionError("no reply: was it charged?")
        return "receipt"

    paying = by_name(declared, "retried", charge)
    with pytest.raises(ConnectionError):
        paying(1, "website")
    declared.clock.advance("3h")  # no clock in the key
    assert paying(1, "website") == "receipt"
    declared.clock.advance("25h")
    assert paying(1, "website") == "receipt"
    assert keys[0] == keys[1] != keys[2]


# ── declared reasons, wherever an outcome is reported ──


@pytest.mark.mission("C1", "E3")
def test_exceptions_carry_the_declared_reason_and_start_with_it(declared: SyncClient) -> None:
    pause = Pause()
    work = by_name(declared, "email", lambda prospect_id: pause.here() if prospect_id == 1 else None, on_done="raise")
    running = declared.start(work, 1)
    pause.reached()
    with pytest.raises(AlreadyRunning, match=r"^send_in_progress: .* is processing it") as caught:
        work(1)
    assert caught.value.reason == "send_in_progress"
    pause.go()
    running.result()
    with pytest.raises(AlreadyDone, match=r"^already_emailed_today: this was done before") as done:
        work(1)
    assert done.value.reason == "already_emailed_today"


@pytest.mark.mission("E3")
def test_every_outcome_has_the_reason_that_the_operation_declares(declared: SyncClient) -> None:
    apply = by_name(declared, "health", lambda env, service, message_id, status: status)
    assert apply.outcome("prod", "api", "m1", "up").reason == "applied"
    assert apply.outcome("prod", "api", "m1", "up").reason == "duplicate_message_noop"
    assert apply.outcome("prod", "api", "m1", "down").reason == "other_message_same_id"
    with pytest.raises(PayloadMismatch, match=r"^other_message_same_id: ") as other:
        apply("prod", "api", "m1", "down")
    assert other.value.reason == "other_message_same_id"


def test_a_parked_outcome_has_its_declared_reason(declared: SyncClient) -> None:
    def wire(order: int) -> None:
        raise ConnectionError("no reply")

    wiring = by_name(declared, "wire", wire)
    assert wiring.outcome(1).reason == "ask_the_bank"
    assert wiring.outcome(1).reason == "ask_the_bank"
    with pytest.raises(OutcomeParked, match=r"^ask_the_bank: ") as caught:
        wiring(1)
    assert caught.value.reason == "ask_the_bank"


def test_a_failure_has_its_declared_reason_and_without_one_nothing_is_added(declared: SyncClient) -> None:
    def fails(prospect_id: int, type: str) -> None:
        raise ValueError("no such site")

    enriching = by_name(declared, "enrich", fails)
    assert enriching.outcome(1, "email").reason == "tried_recently"
    with pytest.raises(PreviouslyFailed, match=r"^tried_recently: attempt 1 failed with ValueError: no such site"):
        enriching(1, "email")
    plain = declared(key="k:{x}", name="plain", final=ValueError)(lambda x: fails(x, ""))
    with pytest.raises(ValueError, match="no such site"):
        plain(1)
    with pytest.raises(PreviouslyFailed, match=r"^attempt 1 failed") as caught:
        plain(1)
    assert caught.value.reason == "failed"


def test_calls_in_bulk_get_the_same_reasons(declared: SyncClient) -> None:
    work = by_name(declared, "email", lambda prospect_id: None)
    outcomes = declared.map(work, [1, 2, 1])
    assert [outcome.reason for outcome in outcomes] == ["sent", "sent", "already_emailed_today"]
    assert [outcome.reason for outcome in declared.map(work, [2])] == ["already_emailed_today"]


def test_events_and_log_lines_contain_the_reason(declared: SyncClient, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "onceward")
    work = by_name(declared, "email", lambda prospect_id: None)
    work(1), work(1)
    assert [event.reason for event in declared.events_named("skipped")] == ["already_emailed_today"]
    assert "skipped email:1 [default/email]: reason already_emailed_today" in caplog.text


def test_a_function_may_declare_reasons_without_a_table(declared: SyncClient) -> None:
    work = declared(key="k:{x}", name="worded", reasons={"done": "seen_before"})(lambda x: x)
    work(1)
    outcome = work.outcome(1)
    assert isinstance(outcome, Replayed)
    assert (outcome.reason, str(outcome), outcome.kind) == ("seen_before", "seen_before", "replayed")


def test_a_claim_block_uses_the_reasons_of_its_client(client: SyncClient) -> None:
    worded = client.another(reasons={"done": "seen_before"})
    with worded.claim("k"):
        pass
    with pytest.raises(NotAcquired, match=r"^seen_before: ") as caught, worded.claim("k"):
        pytest.fail("the block must not run")
    assert caught.value.reason == "seen_before"


# ── E: the state of services ──


@pytest.mark.mission("E5")
def test_parts_of_a_key_do_not_run_into_each_other(declared: SyncClient) -> None:
    apply = by_name(declared, "health", lambda env, service, message_id: (env, service))
    assert apply("a__b", "c", "m") == ("a__b", "c")
    assert apply("a", "b__c", "m") == ("a", "b__c"), "the same text, and another key"
    assert apply("prod", "api", "m") == ("prod", "api")
    assert apply("staging", "api", "m") == ("staging", "api")


@pytest.mark.mission("E7")
def test_records_of_messages_expire_so_that_the_store_does_not_grow_without_limit(declared: SyncClient) -> None:
    apply = by_name(declared, "health", lambda env, service, message_id: None)
    for message in range(20):
        apply("prod", "api", str(message))
    declared.clock.advance("6d23h")
    assert declared.purge() == 0
    assert apply.outcome("prod", "api", "0").replayed
    declared.clock.advance("2h")
    assert declared.purge() == 20


@pytest.mark.mission("E2", "E3")
def test_claim_and_state_are_written_in_one_transaction_or_neither_is(tmp_path: Path) -> None:
    once = Once(f"sqlite:///{tmp_path}/ops.db", operations=OPERATIONS)
    reasons: list[str] = []
    once.subscribe(lambda event: reasons.append(event.reason) if event.name == "skipped" else None)
    database = sqlite3.connect(tmp_path / "ops.db")
    database.execute("CREATE TABLE ops_services (id TEXT PRIMARY KEY, status TEXT, writes INTEGER)")
    database.commit()

    @once.operation("health")
    def apply(env: str, service: str, message_id: str, status: str) -> str:
        database.execute(
            "INSERT INTO ops_services VALUES (?1, ?2, 1)"
            " ON CONFLICT (id) DO UPDATE SET status = ?2, writes = writes + 1",
            (f"{env}__{service}", status),
        )
        if status == "broken":
            raise ValueError(status)
        return status

    for message, status in (("m1", "up"), ("m1", "up"), ("m2", "broken"), ("m2", "broken"), ("m3", "down")):
        try:
            with database, once.within(database) as transaction:
                transaction.call(apply, "prod", "api", message, status)
        except ValueError:
            assert apply.read("prod", "api", message, status) is None, "not applied, so not claimed either"
    assert database.execute("SELECT * FROM ops_services").fetchall() == [("prod__api", "down", 2)]
    assert reasons == ["duplicate_message_noop"]
    database.close()
    once.close()

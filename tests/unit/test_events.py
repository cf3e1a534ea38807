"""Events: one for each transition, with its log level, and without any effect on the work."""

from __future__ import annotations

import contextvars
import logging
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from onceward import (
    AlreadyRunning,
    LeaseLost,
    Once,
    OutcomeUnknown,
    PayloadMismatch,
    StoreUnavailable,
    not_applied,
    verify,
)
from onceward.engine.events import LEVELS, Bus, Level
from onceward.errors import ClaimError
from onceward.observe import Event
from onceward.observe.log import log_raised
from onceward.runtime.threads import run
from onceward.stores import MemoryStore
from onceward.testing.clock import FakeClock
from tests.clients import SyncClient
from tests.faulty import FaultyNetwork, FaultyStore

NamesAndReasons = list[tuple[str, str]]


class Stage:
    def __init__(self, **defaults: Any) -> None:
        self.clock = FakeClock()
        self.network = FaultyNetwork()
        self.store = FaultyStore(MemoryStore(clock=self.clock), self.network)
        self.once = Once(self.store, **defaults)
        self.events: list[Event] = []
        self.once.subscribe(self.events.append)

    def reported(self) -> NamesAndReasons:
        return [(event.name, event.reason) for event in self.events]

    def only(self, name: str) -> Event:
        found = [event for event in self.events if event.name == name]
        assert len(found) == 1, self.reported()
        return found[0]


def elsewhere(call: Callable[[], Any]) -> Any:
    """Call it like another caller, outside the current claim."""
    return contextvars.Context().run(call)


def work(amount: int = 1) -> int:
    return amount


def break_down() -> None:
    raise ConnectionError("no route")


# ── one event per transition ──


def test_work_that_is_done_is_acquired_and_completed() -> None:
    stage = Stage()
    outcome = stage.once.outcome("order 7", work)
    assert stage.reported() == [("acquired", ""), ("completed", "")]
    done = stage.only("completed")
    assert (done.key, done.attempt, done.token, done.state) == ("order 7", 1, outcome.token, "COMPLETED")
    assert done.scope.startswith("default/")
    assert done.owner.rpartition(":")[2].isdigit()


def test_every_skip_is_reported_with_its_reason() -> None:
    stage = Stage()
    stage.once.run("order 7", work)
    stage.events.clear()
    stage.once.run("order 7", work)
    assert stage.reported() == [("skipped", "replayed")]
    elsewhere(stage.once.claim("held").__enter__)
    stage.events.clear()
    with pytest.raises(AlreadyRunning), stage.once.claim("held", on_running="raise"):
        pass
    assert stage.reported() == [("skipped", "running")]


def test_a_failure_is_reported_with_the_name_of_the_error_and_not_with_its_message() -> None:
    """A message may hold what a log must not."""
    stage = Stage()
    with pytest.raises(ConnectionError):
        stage.once.run("order 7", break_down)
    failed = stage.only("failed")
    assert (failed.error, failed.state, failed.attempt) == ("ConnectionError", "FAILED", 1)
    assert "no route" not in str(failed)


def test_a_final_failure_says_so() -> None:
    stage = Stage(final=ConnectionError)
    with pytest.raises(ConnectionError):
        stage.once.run("order 7", break_down)
    assert stage.only("failed").reason == "final"


def test_parking_is_reported() -> None:
    stage = Stage(after_crash="park")
    with pytest.raises(ConnectionError):
        stage.once.run("order 7", break_down)
    assert stage.reported() == [("acquired", ""), ("parked", "")]
    assert stage.only("parked").state == "PARKED"


def test_another_payload_is_reported() -> None:
    stage = Stage()
    stage.once.run("order 7", work, 1)
    with pytest.raises(PayloadMismatch):
        stage.once.run("order 7", work, 2)
    assert stage.only("mismatch").key == "order 7"


def test_a_mismatch_names_what_differs_and_what_to_do_but_no_value(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    stage.once.run("order 7", work, 1999)
    with pytest.raises(PayloadMismatch):
        stage.once.run("order 7", work, 2999)
    reported = stage.only("mismatch")
    assert reported.reason == "mismatch"
    assert "differs in: amount; nothing was run → use a new key" in reported.error
    logged = caplog.records[-1].getMessage()
    assert reported.error in logged
    assert f"earlier owner {reported.owner}" in logged  # the earlier owner did nothing wrong
    assert "999" not in reported.error


def test_a_mismatch_of_very_many_arguments_names_some() -> None:
    stage = Stage()
    with stage.once.claim("order 7", payload={f"field{number}": 1 for number in range(50)}):
        pass
    with pytest.raises(PayloadMismatch), stage.once.claim("order 7", payload={"field0": 1}):
        pass
    assert "field10 and more;" in stage.only("mismatch").error
    assert "field11" not in stage.only("mismatch").error


def test_a_result_that_is_not_stored_is_reported_with_the_reason() -> None:
    stage = Stage(max_result_bytes=20)
    stage.once.run("order 7", str, "x" * 100)
    assert "limit is 20" in stage.only("result_not_stored").reason


def test_a_take_over_says_that_it_is_one() -> None:
    stage = Stage()
    elsewhere(stage.once.claim("order 7").__enter__)
    stage.clock.advance("1h")
    stage.events.clear()
    with stage.once.claim("order 7"):
        pass
    assert stage.reported()[0] == ("acquired", "taken over")
    assert stage.only("acquired").attempt == 2


@pytest.mark.finding("N26")
def test_a_retry_after_a_failure_is_not_reported_as_a_take_over() -> None:
    stage = Stage()
    for _ in range(2):
        stage.events.clear()
        with pytest.raises(ValueError, match="no"), stage.once.claim("order 7"):
            raise ValueError("no")
    assert stage.reported()[0] == ("acquired", "retry")


def test_a_refused_result_is_reported_as_lost() -> None:
    stage = Stage()
    with pytest.raises(LeaseLost), stage.once.claim("order 7"):
        stage.clock.advance("1h")
        elsewhere(Once(stage.store).claim("order 7").__enter__)
    assert stage.reported()[-1] == ("lost", "result refused")


@pytest.mark.fault("F50")
def test_running_unprotected_is_reported_with_the_key() -> None:
    stage = Stage(on_store_down="run")
    stage.network.lose_requests("claim")
    stage.once.run("order 7", work)
    event = stage.only("unprotected")
    assert event.key == "order 7"
    assert event.reason.startswith("store down")
    assert event.level is Level.ERROR


@pytest.mark.fault("F51")
def test_a_result_that_the_store_never_confirms_is_reported_as_unknown_after_each_retry_was_reported() -> None:
    stage = Stage(settle_timeout="30ms")
    stage.network.lose_requests("settle")
    with pytest.raises(OutcomeUnknown):
        stage.once.run("order 7", work)
    names = [name for name, _ in stage.reported()]
    assert names[0] == "acquired"
    assert set(names[1:-1]) == {"settle_retried"}
    assert names[-1] == "unknown"


def test_a_claim_that_could_not_be_kept_is_reported_as_released(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    monkeypatch.setattr("threading.Thread.start", cannot_start)
    with pytest.raises(ClaimError, match="can't start"):
        stage.once.run("order 7", work)
    assert stage.reported() == [("released", "")]


def cannot_start(_thread: object) -> None:
    raise RuntimeError("can't start new thread")


def test_parking_another_workers_record_is_reported_as_lost_and_not_as_parked() -> None:
    """Another worker replaced this one while it worked, so its outcome no longer counts."""
    stage = Stage(after_crash=verify(lambda: None))

    def overtaken() -> None:
        stage.clock.advance("1h")
        with Once(stage.store, after_crash=verify(lambda: not_applied)) as other:
            elsewhere(lambda: other.run("order 7", overtaken_again))
        raise ConnectionError

    def overtaken_again() -> str:
        return "theirs"

    overtaken_again.__qualname__ = overtaken.__qualname__
    with pytest.raises(ConnectionError):
        stage.once.run("order 7", overtaken)
    assert [name for name, _ in stage.reported()] == ["acquired", "lost"]


# ── levels ──

SILENT, LOUD = (Level.DEBUG, Level.INFO), (Level.WARNING, Level.ERROR)


def test_a_long_wait_is_reported_once() -> None:
    once, waiting = Once(MemoryStore(), on_running="wait", wait="2m", lease="60s"), threading.Event()
    events: list[Event] = []
    once.subscribe(events.append)
    once.subscribe(lambda event: waiting.set() if event.name == "waiting" else None)
    with ThreadPoolExecutor() as pool:
        with once.claim("order:1") as claim:
            value = pool.submit(once.run, "order:1", work)
            assert waiting.wait(60)
            claim.complete(1)
        assert value.result(60) == 1
    [event] = [event for event in events if event.name == "waiting"]
    assert event.key == "order:1"
    assert event.owner == once.read("order:1").owner  # type: ignore[union-attr]  # it was completed
    assert re.fullmatch(
        r"another worker is processing this key; its lease ends in \d\d s unless it is renewed; "
        r"this call waits 1\d\d s more",
        event.reason,
    )


def test_a_short_wait_is_not_reported() -> None:
    stage = Stage(on_running="wait", wait="10ms")
    with stage.once.claim("order:1"):
        assert elsewhere(lambda: stage.once.outcome("order:1", work)).kind == "running"
    assert "waiting" not in [name for name, _ in stage.reported()]


@pytest.mark.parametrize(
    ("name", "level"),
    [
        ("acquired", Level.INFO),
        ("completed", Level.INFO),
        ("skipped", Level.INFO),
        ("waiting", Level.INFO),
        ("released", Level.INFO),
        ("renewed", Level.DEBUG),
        ("resolved", Level.INFO),
        ("forgotten", Level.WARNING),
        ("renewal_failed", Level.WARNING),
        ("overdue", Level.WARNING),
        ("failed", Level.WARNING),
        ("settle_retried", Level.WARNING),
        ("retry_delay_failed", Level.WARNING),
        ("slow_transaction", Level.WARNING),
        ("open_transaction", Level.WARNING),
        ("mode_changed", Level.WARNING),
        ("would_skip", Level.INFO),
        ("switched_off", Level.DEBUG),
        ("not_set_up", Level.ERROR),
        ("still_held", Level.WARNING),
        ("missed", Level.WARNING),
        ("schedule_delayed", Level.WARNING),
        ("delivered_later", Level.INFO),
        ("queue_failed", Level.WARNING),
        ("dead_lettered", Level.ERROR),
        ("claim_failed", Level.WARNING),
        ("counting_failed", Level.WARNING),
        ("mismatch", Level.ERROR),
        ("lost", Level.ERROR),
        ("parked", Level.ERROR),
        ("unknown", Level.ERROR),
        ("unprotected", Level.ERROR),
        ("result_not_stored", Level.ERROR),
        ("applied", Level.DEBUG),
        ("stale", Level.INFO),
        ("step_done", Level.INFO),
        ("step_undone", Level.INFO),
        ("step_failed", Level.WARNING),
        ("compensating", Level.WARNING),
        ("rejected", Level.WARNING),
    ],
)
def test_each_event_has_its_log_level(name: str, level: Level, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "onceward")
    stage = Stage()
    stage.once.engine.bus.emit(Event(name=name, key="k", scope="s"))
    assert stage.events[-1].level is level
    assert [record.levelno for record in caplog.records] == [int(level)]


def test_no_event_is_left_without_a_test_of_its_level() -> None:
    marks = getattr(test_each_event_has_its_log_level, "pytestmark", [])
    assert {name for name, _ in marks[0].args[1]} == set(LEVELS)


def test_the_page_about_events_lists_every_event_with_its_level() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "events.md").read_text("utf-8")
    assert dict(re.findall(r"^\| `(\w+)` \| (\w+) \|", page, re.MULTILINE)) == {
        name: level.name for name, level in LEVELS.items()
    }


# ── the log ──


def test_the_log_line_names_event_and_key_and_carries_every_field(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "onceward")
    stage = Stage(app="billing", tenant="acme")
    outcome = stage.once.outcome("order 7", work)
    done = caplog.records[-1]
    assert done.name == "onceward"
    assert done.getMessage().startswith("completed order 7 [billing/")
    assert {f"onceward_{name}" for name in Event.__struct_fields__} <= set(vars(done))
    assert vars(done)["onceward_key"] == "order 7"
    assert vars(done)["onceward_token"] == outcome.token
    assert vars(done)["onceward_scope"].endswith("@acme")


@pytest.mark.parametrize("evil", ["a\nERROR forged line", "\x1b[31mred", "a\r\0b", "\u202etxt.exe", "\x85\u2028"])
def test_a_key_cannot_forge_lines_or_escape_sequences_in_the_log(evil: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "onceward")
    stage = Stage(app=evil, tenant=evil)
    stage.once.run(evil, work)
    for event in stage.events:
        assert event.key.isprintable()
        assert event.scope.isprintable()
    assert len(caplog.records) == 2
    assert all(record.getMessage().isprintable() for record in caplog.records)


def test_error_texts_of_a_store_cannot_forge_lines_either(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage(on_store_down="run")

    async def broken(*_: object, **__: object) -> Any:
        raise StoreUnavailable("down\nERROR forged line \x1b[31m")

    stage.store.claim = broken  # type: ignore[method-assign]
    stage.once.run("order 7", work)
    assert caplog.records
    assert all(record.getMessage().isprintable() for record in caplog.records)


def test_no_event_is_built_for_a_disabled_log_level(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.ERROR, "onceward")
    made: list[Event] = []
    monkeypatch.setattr(Bus, "emit", lambda _bus, event: made.append(event))
    with Once("memory://") as once:
        once.run("order 7", work)
    assert made == []


# ── listeners ──


def test_an_event_cannot_be_changed_by_its_listeners() -> None:
    stage = Stage()
    stage.once.run("order 7", work)
    with pytest.raises(AttributeError):
        stage.events[0].key = "another"  # type: ignore[misc]


def test_a_listener_that_raises_disturbs_neither_the_work_nor_the_others(caplog: pytest.LogCaptureFixture) -> None:
    with Once("memory://") as once:
        heard: list[str] = []

        def angry(event: Event) -> None:
            raise ValueError(event.name)

        once.subscribe(angry)
        once.subscribe(lambda event: heard.append(event.name))
        assert once.run("order 7", work) == 1
        assert once.outcome("order 7", work).replayed
    assert heard == ["acquired", "completed", "skipped"]
    complaints = [record for record in caplog.records if "listener failed" in record.getMessage()]
    assert [record.levelno for record in complaints] == [logging.ERROR] * 3


def test_a_listener_gets_no_events_after_it_has_unsubscribed() -> None:
    with Once("memory://") as once:
        heard: list[Event] = []
        leave: Callable[[], None] = once.subscribe(heard.append)
        once.run("order 7", work)
        count = len(heard)
        leave()
        leave()
        once.run("order 8", work)
        assert len(heard) == count > 0


def test_clients_made_by_using_share_their_listeners() -> None:
    with Once("memory://") as once:
        heard: list[str] = []
        once.subscribe(lambda event: heard.append(event.scope))
        once.using(tenant="acme").run("order 7", work)
    assert all(scope.endswith("@acme") for scope in heard)
    assert heard


def test_events_come_after_the_answer_so_that_a_listener_may_read_the_record() -> None:
    store = MemoryStore()
    with Once(store) as once:
        states: list[str] = []

        def look(event: Event) -> None:
            if event.name == "completed":
                record = run(store.read([once.key("order 7").id], timeout=1))[0].record
                states.append(record.state.value if record else "none")

        once.subscribe(look)
        with once.claim("order 7"):
            pass
    assert states == ["COMPLETED"]


@pytest.mark.mission("A6")
def test_events_are_counted_even_without_listeners(client: SyncClient) -> None:
    """Operators need the number of unprotected runs later."""
    other = client.another(on_store_down="run")
    other.run("a", int)
    other.run("a", int)
    with other.store_trouble("claim"):
        other.run("b", int)
        other.run("c", int)
    counts = other.once.counts
    assert (counts["acquired"], counts["completed"], counts["skipped"], counts["unprotected"]) == (1, 1, 1, 2)
    counts["unprotected"] = 0  # a copy
    assert other.once.counts["unprotected"] == 2


@pytest.mark.parametrize(("level", "shown"), [(logging.WARNING, False), (logging.DEBUG, True)])
def test_a_log_record_contains_the_exception_only_if_its_message_may_be_logged(
    level: int, shown: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(level, "onceward.raised")
    log_raised(ValueError("card of Ada"), "order:1")
    [record] = caplog.records
    assert ("Ada" in f"{record.getMessage()} {vars(record)}") is shown
    assert hasattr(record, "onceward_error") is shown

"""Mission C1 and C2: at most one e-mail per prospect in 24 h, and the lock that such systems implement themselves."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import pytest

from onceward import AlreadyRunning, LeaseLost, NotAcquired, RecordState, Replayed, Running, calendar
from tests.clients import Pause, SyncClient

DAY = 86_400


class Outreach:
    """The seed's `send_email`, on top of a client, with the answers that its callers expect."""

    def __init__(self, client: SyncClient, **settings: Any) -> None:
        self.sent: list[tuple[int, str]] = []
        self.pause: Pause | None = None
        chosen = {"window": "24h", "lease": "300s", "on_running": "skip", "fingerprint": "none"} | settings
        self.guarded = client(key="email:{prospect_id}", name="email", **chosen)(self._send)

    def _send(self, prospect_id: int, text: str) -> None:
        if self.pause is not None:
            self.pause.here()
        self.sent.append((prospect_id, text))

    def send(self, prospect_id: int, text: str) -> dict[str, Any]:
        outcome = self.guarded.outcome(prospect_id, text)
        if isinstance(outcome, Running):
            return {"skipped": True, "reason": "send_in_progress"}
        if isinstance(outcome, Replayed):
            return {"skipped": True, "reason": "already_emailed_today"}
        outcome.unwrap()
        return {"sent": True}


@pytest.mark.mission("C1")
def test_a_second_mail_within_a_day_is_skipped_whatever_its_text(client: SyncClient) -> None:
    outreach = Outreach(client)
    assert outreach.send(1, "hello") == {"sent": True}
    assert outreach.send(1, "hello") == {"skipped": True, "reason": "already_emailed_today"}
    assert outreach.send(1, "quite another text") == {"skipped": True, "reason": "already_emailed_today"}
    assert outreach.send(2, "hello") == {"sent": True}
    assert outreach.sent == [(1, "hello"), (2, "hello")]
    assert outreach.guarded.key(1, "hello").text == "email:1"


@pytest.mark.mission("C1")
def test_of_three_concurrent_mails_exactly_one_is_sent(client: SyncClient) -> None:
    outreach = Outreach(client)
    for prospect in range(5):
        texts = iter(["one", "two", "three"])
        answers = client.together(3, lambda prospect=prospect, texts=texts: outreach.send(prospect, next(texts)))  # type: ignore[misc]  # binds the loop's values
        assert answers.count({"sent": True}) == 1, answers
        assert all(answer.get("skipped") for answer in answers if answer != {"sent": True})
    assert sorted(prospect for prospect, _ in outreach.sent) == [0, 1, 2, 3, 4]


@pytest.mark.mission("C1")
def test_while_a_mail_is_being_sent_other_calls_get_send_in_progress_for_at_most_the_lease(client: SyncClient) -> None:
    outreach = Outreach(client)
    outreach.pause = Pause()
    sending = client.start(outreach.send, 1, "hello")
    outreach.pause.reached()
    assert outreach.send(1, "again") == {"skipped": True, "reason": "send_in_progress"}
    client.clock.advance("299s")
    assert outreach.send(1, "again") == {"skipped": True, "reason": "send_in_progress"}
    outreach.pause.go()
    assert sending.result() == {"sent": True}
    assert outreach.send(1, "again") == {"skipped": True, "reason": "already_emailed_today"}
    assert outreach.sent == [(1, "hello")]


@pytest.mark.mission("C1")
def test_a_mail_that_could_not_be_sent_does_not_count_as_sent_today(client: SyncClient) -> None:
    outreach = Outreach(client)
    outreach.sent = Broken()
    with pytest.raises(ConnectionError):
        outreach.send(1, "hello")
    outreach.sent = []
    assert outreach.send(1, "hello") == {"sent": True}


class Broken(list[tuple[int, str]]):
    """A mail server that is down."""

    def append(self, mail: tuple[int, str]) -> None:
        raise ConnectionError(mail)


@pytest.mark.mission("C1")
@pytest.mark.rival(26)
def test_rolling_24_hours_and_a_calendar_day_are_different_windows_each_under_its_own_name(client: SyncClient) -> None:
    rolling = Outreach(client.another(app="rolling"))
    daily = Outreach(client.another(app="daily"), window=calendar("Europe/Berlin"))
    evening = datetime(2026, 6, 1, 20, 0, tzinfo=UTC)  # 22:00 in Berlin
    client.clock.advance_microseconds(int(evening.timestamp() * 1_000_000) - client.clock.now())
    assert rolling.send(1, "a") == daily.send(1, "a") == {"sent": True}
    client.clock.advance("2h")  # midnight in Berlin
    assert rolling.send(1, "b") == {"skipped": True, "reason": "already_emailed_today"}
    assert daily.send(1, "b") == {"sent": True}
    client.clock.advance("21h")  # 21:00 the next day
    assert daily.send(1, "c") == rolling.send(1, "c") == {"skipped": True, "reason": "already_emailed_today"}
    client.clock.advance("1h")  # 24 h after the first
    assert rolling.send(1, "d") == {"sent": True}
    assert daily.send(1, "d") == {"skipped": True, "reason": "already_emailed_today"}


# ── C2: a lock ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mission("C2")
def test_a_lock_is_acquired_with_a_time_to_live_and_frees_itself_after_it(client: SyncClient) -> None:
    client.silent_owner("lock:sync", lease="30s")
    client.clock.advance("29s")
    with pytest.raises(AlreadyRunning) as taken:
        client.another().silent_owner("lock:sync", lease="30s", on_running="raise")
    assert taken.value.retry_after == pytest.approx(1, abs=0.01)
    client.clock.advance("1s")
    assert client.another().silent_owner("lock:sync", lease="30s", on_running="raise").attempt == 2


@pytest.mark.mission("C2")
def test_a_release_by_a_previous_owner_does_not_free_the_new_owners_lock(client: SyncClient) -> None:
    late = client.silent_owner("lock:sync", lease="30s")
    client.clock.advance("31s")
    owner = client.another().silent_owner("lock:sync", lease="30s")
    with pytest.raises(LeaseLost):
        late.complete()
    with pytest.raises(AlreadyRunning):
        client.silent_owner("lock:sync", on_running="raise")
    owner.complete()
    assert client.read("lock:sync").state is RecordState.COMPLETED


def with_lock(client: SyncClient, name: str, work: Any) -> Any:
    """Return the work's value, or None when the lock is taken. Release the lock when the work is done."""
    try:
        with client.claim(name, lease="30s", on_running="raise"):
            value = work()
    except NotAcquired:
        return None
    client.forget(name)
    return value


@pytest.mark.mission("C2")
def test_with_lock_reports_a_taken_lock_and_leaves_it_free_afterwards(client: SyncClient) -> None:
    other = client.another()
    pause = Pause()

    def slowly() -> str:
        pause.here()
        return "first"

    first = client.start(with_lock, client, "lock:sync", slowly)
    pause.reached()
    assert with_lock(other, "lock:sync", lambda: "second") is None
    pause.go()
    assert first.result() == "first"
    assert with_lock(other, "lock:sync", lambda: "third") == "third"


@pytest.mark.mission("C2")
def test_of_eight_concurrent_workers_one_gets_the_lock(client: SyncClient) -> None:
    """Not get-then-put: the counter that the lock protects is deliberately not atomic."""
    counter, answers = [0], []

    def work() -> bool:
        seen = counter[0]
        time.sleep(0.002)
        counter[0] = seen + 1
        return True

    workers = [client, client.another()]
    for round_ in range(10):
        worker = workers[round_ % 2]
        answers += client.together(8, lambda worker=worker: with_lock(worker, "lock:sync", work))  # type: ignore[misc]  # binds the loop's value
    assert set(answers) == {True, None}
    assert counter == [answers.count(True)]

"""One key in detail: what happened, what is hidden, and what the failing function was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from onceward import Once, RecordState, not_applied
from onceward.administration import Admin, Redaction, run
from onceward.administration.cron_text import cron_text
from onceward.engine.error_text import raised_in
from tests.administration.shop import admin_of, fail, park
from tests.clients import SyncClient

SECRET: dict[str, object] = {
    "card": "4242",
    "customer": {"name": "Anna", "api_token": "xyz"},
    "items": [{"password": "p", "n": 1}],
}


def test_results_and_inputs_are_shown_only_on_request_and_without_secrets() -> None:
    with Once("memory://", app="shop") as once:

        @once(key="charge:{n}", store_input=True)
        def charge(n: int, password: str) -> dict[str, object]:
            if n == 2:
                raise ValueError(f"no card for {n}")
            return SECRET

        charge(1, password="hunter2")
        assert charge.outcome(2, password="hunter2").kind == "failed"
        admin = Admin.of(once)
        failed, done = (run(admin.key(row.id)) for row in run(admin.keys()).rows)
        assert failed is not None
        assert done is not None
        assert done.result.value is None
        assert done.result.size > 0
        assert "hunter2" not in repr(failed)
        assert "4242" not in repr(done)
        shown = run(admin.key(done.row.id, values=True))
        assert shown is not None
        assert shown.result.value == {
            "card": "***", "customer": {"name": "Anna", "api_token": "***"}, "items": [{"password": "***", "n": 1}],
        }  # fmt: skip
        given = run(admin.key(failed.row.id, values=True))
        assert given is not None
        assert given.input.value == {"args": [2], "kwargs": {"password": "***"}}
        own = Admin.of(once, redaction=Redaction("customer"))
        other = run(own.key(done.row.id, values=True))
        assert other is not None
        assert other.result.value["customer"] == "***"
        assert other.result.value["card"] == "4242"


def test_the_timeline_tells_the_life_of_a_key(client: SyncClient) -> None:
    park(client, "wire:7")
    client.clock.advance("1h")
    client.resolve("wire:7", not_applied, why="no such transfer")
    client.clock.advance("1h")
    fail(client, "wire:7", ValueError("closed"))
    admin = admin_of(client)
    [row] = admin.keys().rows
    detail = admin.key(row.id)
    events = [(one.what, one.planned) for one in detail.timeline]
    assert [what for what, planned in events if not planned] == ["created", "resolve", "claimed", "failed"]
    assert ("window", True) in events
    assert detail.timeline[-1].text == "the failure is forgotten in 4w2d"
    assert detail.timeline == sorted(detail.timeline, key=lambda one: (one.planned, one.at))
    assert any("no such transfer" in one.text for one in detail.timeline)
    assert any("no such transfer" in one for one in detail.explanation)
    assert detail.attempt_state == "SETTLED"
    assert {one.action: one.allowed for one in detail.actions} == {
        "retry": True, "release": False, "resolve-applied": False, "resolve-not-applied": False,
        "resolve-abandon": False, "forget": True,
    }  # fmt: skip
    assert detail.policy[0] == "After a crash, the next delivery runs it again."


@contextmanager
def later(client: SyncClient) -> Iterator[None]:
    client.clock.advance("1s")
    yield


def test_a_worker_that_holds_leases_is_alive_until_they_expire(client: SyncClient) -> None:
    with client.claim("a"), later(client), client.claim("b"):
        admin = admin_of(client)
        [worker] = admin.workers().rows
        assert worker.running == 2
        assert worker.oldest.key == "a"
        client.clock.advance("1h")
        assert admin.workers().rows == []
        assert {row.standing for row in admin.keys().rows} == {"PENDING lapsed"}


def test_a_key_is_found_by_its_id_by_its_text_and_by_its_start(client: SyncClient) -> None:
    client.run("order:17", str)
    client.run("order:171", str)
    admin = admin_of(client)
    exact = next(row for row in admin.keys().rows if row.key == "order:17")
    assert [row.key for row in admin.find(exact.id)] == ["order:17"]
    assert [row.key for row in admin.find(f"id:{exact.id}")] == ["order:17"]
    assert {row.key for row in admin.find("order:17")} == {"order:17", "order:171"}
    assert admin.find("nothing") == admin.find("") == admin.find("f" * 64) == []
    assert exact.state is RecordState.COMPLETED


def raising() -> None:
    import json

    json.loads("{")


def test_the_frame_is_the_application_function_that_called_the_library() -> None:
    with pytest.raises(ValueError, match="Expecting") as caught:
        raising()
    assert raised_in(caught.value).startswith(f"{__name__}.raising:")
    assert raised_in(ValueError("never raised")) == raised_in(None) == ""


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("0 3 * * *", "at 03:00 every day"),
        ("@daily", "at 00:00 every day"),
        ("*/5 * * * *", "every 5 minutes"),
        ("*/5 8-18 * * 1-6", "every 5 minutes from 08:00 to 18:59 on Monday to Saturday"),
        ("30 2 1 * *", "at 02:30 on day 1 of the month"),
        ("0 9 * * mon,wed", "at 09:00 on Monday and Wednesday"),
        ("0 0 1 1 *", "at 00:00 on day 1 of the month in January"),
        ("15,45 * * * *", "at minutes 15 and 45 of every hour"),
        ("30 0 3 * * *", "at 03:00:30 every day"),
        ("0 9 L * *", "at 09:00 on the last day of the month"),
        ("0 9 * * 5#2", "at 09:00 on 5#2"),
        ("nonsense", "nonsense"),
    ],
)
def test_a_pattern_in_words(pattern: str, text: str) -> None:
    assert cron_text(pattern) == text

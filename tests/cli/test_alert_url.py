"""`onceward check --alert-url`: alerts as JSON, without the URL in any message."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from onceward import Once, StoreUnavailable
from onceward.cli import check as command
from onceward.cli.alert_url import alert_document
from onceward.cli.exit_codes import Exit
from onceward.client.alerts import send_alerts
from onceward.observe.rules import Figures, RecordFigures, check
from onceward.observe.thresholds import Thresholds
from onceward.protocol.counters import CounterTotals
from onceward.protocol.secrets import url_without_secrets
from tests.cli.calls import call, line

STORE = "sqlite:///onceward.db"


class Hook:
    """A server that keeps the alerts it gets."""

    def __init__(self) -> None:
        self.alerts: list[dict[str, Any]] = []
        self.status = 200
        self.length = "0"  # of the body that is announced, and never sent
        hook = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"  # the connection stays open

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                hook.alerts.append(json.loads(body))
                self.send_response(hook.status)
                self.send_header("Location", "http://example.com/")
                self.send_header("Content-Length", hook.length)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/services/secret-token"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def hook() -> Iterator[Hook]:
    hook = Hook()
    yield hook
    hook.server.shutdown()
    hook.server.server_close()


@pytest.fixture(autouse=True)
def broken_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store with a failure that is not retried."""

    def fail() -> None:
        raise ValueError("no such card")

    monkeypatch.chdir(tmp_path)
    with Once(STORE, app="shop", max_attempts=1, counters=True) as once:
        once.outcome("charge:42", fail)


@pytest.mark.finding("N23")
def test_an_alert_is_posted_once_and_says_what_to_run(hook: Hook) -> None:
    for _ in range(2):
        assert call("check", "--alert-url", hook.url).exit_code == Exit.ATTENTION
    [alert] = hook.alerts
    assert (alert["rule"], alert["scope"], alert["figure"]) == ("failed_final", "shop/shared", 1)
    assert "`onceward ls --state FAILED`" in alert["text"]
    assert "onceward runbook failed-final" in alert["text"]


@pytest.mark.finding("N23")
def test_the_url_may_come_from_the_environment(hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONCEWARD_ALERT_URL", hook.url)
    assert call("check").exit_code == Exit.ATTENTION
    assert len(hook.alerts) == 1


@pytest.mark.finding("N23")
def test_a_command_and_a_url_remember_separately_what_was_sent(hook: Hook) -> None:
    assert call("check", "--alert", "false", "--alert-url", hook.url).exit_code == Exit.ATTENTION
    assert call("check", "--alert", "true", "--alert-url", hook.url).exit_code == Exit.ATTENTION
    assert len(hook.alerts) == 1


@pytest.mark.finding("N23")
@pytest.mark.parametrize("status", [302, 404, 500])
def test_a_refused_alert_is_retried_and_the_secret_of_the_url_is_not_printed(hook: Hook, status: int) -> None:
    hook.status = status
    result = call("check", "--alert-url", hook.url)
    assert f"was not sent (127.0.0.1 answered with status {status}); the next check retries it" in line(result)
    assert "secret" not in result.output
    assert "secret" not in call("ls", "--scope", "default/alert:rule").output
    hook.status = 200
    assert call("check", "--alert-url", hook.url).exit_code == Exit.ATTENTION
    assert len(hook.alerts) == 2


@pytest.mark.finding("N23")
def test_a_host_that_does_not_respond_is_reported_without_the_url(hook: Hook) -> None:
    hook.server.shutdown()
    hook.server.server_close()
    said = line(call("check", "--alert-url", hook.url))
    assert "127.0.0.1 could not be reached: ConnectionRefusedError" in said
    assert "secret" not in said


@pytest.mark.finding("N23")
@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://hooks.example.com/secret", "would send alerts to hooks.example.com unencrypted"),
        ("ftp://hooks.example.com/secret", "is not an http URL"),
        ("https://user:secret@hooks.example.com/", "contains a user name"),
        ("https://[secret", "is not a URL"),
        ("secret", "is not an http URL"),
    ],
)
def test_a_url_that_is_not_safe_is_refused(url: str, said: str) -> None:
    result = call("check", "--alert-url", url)
    assert result.exit_code == Exit.USAGE
    assert said in line(result)
    assert "secret" not in line(result)


@pytest.mark.finding("N23")
def test_an_alert_names_its_store_without_secrets() -> None:
    [broken] = check(Figures(CounterTotals(0, 0, {}), RecordFigures(parked={"shop/wire": 1})), Thresholds())
    store = url_without_secrets("postgresql://shop:hush@staging.example.com/shop")
    document = alert_document(broken, store)
    assert document["store"] == "postgresql://shop:***@staging.example.com/shop"
    assert document["store"] in document["text"]


@pytest.mark.finding("N23")
def test_alerts_of_both_channels_name_the_store_for_every_folder(hook: Hook, tmp_path: Path) -> None:
    named = f"sqlite:///{(tmp_path / 'onceward.db').resolve()}"
    command = "sh -c 'echo \"$ONCEWARD_ALERT_STORE\" > named; cat >> named'"
    call("check", "--alert", command, "--alert-url", hook.url)
    assert hook.alerts[0]["store"] == named
    first, *text = (tmp_path / "named").read_text().splitlines()
    assert first == named
    assert text[-1] == f"Store: {named}"


@pytest.mark.finding("N23")
def test_a_reply_whose_body_does_not_arrive_is_a_success(hook: Hook) -> None:
    hook.length = "1000"
    result = call("check", "--alert-url", hook.url)
    assert "was not sent" not in result.output


@pytest.mark.finding("N23")
def test_if_the_command_fails_because_of_the_store_the_url_still_gets_the_alert(
    hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail_for_the_command(*arguments: Any) -> None:
        await send_alerts(*arguments)
        if not arguments[-1]:
            raise StoreUnavailable("the search for earlier alerts took too long")

    monkeypatch.setattr(command, "send_alerts", fail_for_the_command)
    result = call("check", "--alert", "true", "--alert-url", hook.url)
    assert "took too long" in line(result)
    assert len(hook.alerts) == 1

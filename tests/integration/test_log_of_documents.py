"""What the log shows about the processing of a document: each step with its hash and state, at the right level."""

from __future__ import annotations

import logging

import pytest

from onceward import content_key
from tests.clients import SyncClient

PDF = b"%PDF-1.7 an invoice"
HASH = content_key(PDF)

LogLine = tuple[str, str, str, str]
"""Event, level, key and state."""


def lines(caplog: pytest.LogCaptureFixture) -> list[LogLine]:
    logged = [
        (vars(one)["onceward_name"], one.levelname, vars(one)["onceward_key"], vars(one)["onceward_state"])
        for one in caplog.records
        if one.name == "onceward"
    ]
    caplog.clear()
    return logged


@pytest.mark.mission("A9")
def test_a_document_that_is_processed_renewed_and_delivered_again(
    client: SyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "onceward")

    def extract() -> str:
        client.clock.advance("2m")
        client.renew_leases()
        return "text"

    client.run(HASH, extract)
    assert lines(caplog) == [
        ("acquired", "INFO", HASH, "PENDING"),
        ("renewed", "DEBUG", HASH, ""),
        ("completed", "INFO", HASH, "COMPLETED"),
    ]
    client.run(HASH, extract)
    assert lines(caplog) == [("skipped", "INFO", HASH, "COMPLETED")]


@pytest.mark.mission("A9")
def test_a_document_whose_renewal_fails_and_one_that_is_given_up(
    client: SyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "onceward")

    def extract() -> str:
        client.clock.advance("2m")
        with client.store_trouble("renew"):
            client.renew_leases()
        raise ConnectionError

    with pytest.raises(ConnectionError):
        client.run(HASH, extract)
    assert lines(caplog) == [
        ("acquired", "INFO", HASH, "PENDING"),
        ("renewal_failed", "WARNING", HASH, ""),
        ("failed", "WARNING", HASH, "FAILED"),
    ]


@pytest.mark.mission("A9")
def test_a_document_that_is_processed_without_protection(client: SyncClient, caplog: pytest.LogCaptureFixture) -> None:
    """Logged as an error with the hash, so that a person can check the result; and counted, if counters are on."""
    bold = client.another(on_store_down="run", counters=True)
    with bold.store_trouble("claim"):
        bold.run(HASH, str)
    assert [line for line in lines(caplog) if line[1] == "ERROR"] == [("unprotected", "ERROR", HASH, "")]
    assert bold.once.counters.write()
    assert [one.rule for one in bold.wait(bold.once.check())] == ["unprotected"]

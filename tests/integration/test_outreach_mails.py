"""examples/outreach: a prospect gets one mail a day, despite lost answers, refusals and suspended senders."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from examples.outreach.audit import audit, resent, unknown
from onceward import LeaseLost, applied
from onceward.errors import LeaseOverdue
from tests.clients import Pause
from tests.integration.outreach_cases import TODAY, env
from tests.integration.outreach_environment import (
    ANNA,
    BORIS,
    AbortsConnections,
    DiesWhileReplying,
    Environment,
    Paused,
    RejectsQuit,
    opened,
)

__all__ = ["env"]  # fixtures, re-exported so that pytest finds them


@pytest.mark.mission("C1", "C10")
def test_a_prospect_gets_one_mail_a_day_whatever_its_text_also_after_a_restart(env: Environment) -> None:
    env.clock.advance("20h")  # in the evening: the 24 hours are no calendar day
    first = env.worker()
    anna, boris = (first.import_prospect(**who)["id"] for who in (ANNA, BORIS))
    assert first.send_email(anna, "hello") == {"sent": True}
    assert first.send_email(anna, "quite another text") == TODAY
    assert first.send_email(boris, "hello") == {"sent": True}
    first.close()
    again = env.worker()
    assert again.send_email(anna, "after a restart") == TODAY
    env.clock.advance("23h")
    assert again.send_email(anna) == TODAY
    env.clock.advance("1h")
    assert again.send_email(anna, "a day later") == {"sent": True}
    assert env.kept("SELECT prospect FROM mails") == [anna, boris, anna]
    assert len(set(env.kept("SELECT message_id FROM mails"))) == 3
    assert [found.wrong for found in audit(env.data) if found.wrong] == []


@pytest.mark.mission("C1")
def test_while_a_mail_is_being_sent_other_calls_get_send_in_progress(tmp_path: Path) -> None:
    with opened(tmp_path, Paused) as env:
        assert isinstance(env.outside, Paused)
        outreach, other = env.worker(), env.worker()
        prospect = outreach.import_prospect(**ANNA)["id"]
        answers: list[Any] = []
        sending = threading.Thread(target=lambda: answers.append(outreach.send_email(prospect)))
        sending.start()
        env.outside.pause.reached()
        env.clock.advance("299s")
        assert other.send_email(prospect) == {"skipped": True, "reason": "send_in_progress"}
        env.outside.pause.go()
        sending.join(60)
        assert answers == [{"sent": True}]
        assert other.send_email(prospect) == TODAY
        assert len(env.kept("SELECT 1 FROM mails")) == 1


@pytest.mark.mission("C1")
def test_a_mail_that_was_taken_without_an_answer_is_found_by_its_message_id_and_not_sent_again(
    env: Environment,
) -> None:
    outreach = env.worker()
    prospect = outreach.import_prospect(**ANNA)["id"]
    env.outside.loses_answers = True
    with pytest.raises(OSError, match="Connection unexpectedly closed"):
        outreach.send_email(prospect)
    assert env.rows("SELECT count(*) FROM emails") == [0]
    env.outside.loses_answers = False
    env.clock.advance("301s")
    assert env.worker().send_email(prospect) == TODAY
    [sent] = env.kept("SELECT message_id FROM mails")
    assert env.rows("SELECT prospect_id, direction, message_id FROM emails") == [(prospect, "outbound", sent)]


@pytest.mark.mission("C1")
@pytest.mark.parametrize("partial_reply", [b"25", b"2", b"no answer\r\n", b"250 " + b"x" * 10_000])
def test_a_truncated_reply_of_a_server_that_died_is_not_a_refusal(tmp_path: Path, partial_reply: bytes) -> None:
    with opened(tmp_path, DiesWhileReplying) as env:
        assert isinstance(env.outside, DiesWhileReplying)
        outreach = env.worker()
        prospect = outreach.import_prospect(**ANNA)["id"]
        env.outside.partial_reply = partial_reply
        with pytest.raises(OSError, match="invalid reply of the mail server"):
            outreach.send_email(prospect)
        env.outside.partial_reply = b""
        assert outreach.send_email(prospect) == {"skipped": True, "reason": "send_in_progress"}
        env.clock.advance("301s")
        assert outreach.send_email(prospect) == TODAY
        assert len(env.kept("SELECT 1 FROM mails")) == len(env.rows("SELECT 1 FROM emails")) == 1


@pytest.mark.mission("C1")
def test_a_mail_that_never_arrived_is_sent_once_the_server_says_so(tmp_path: Path) -> None:
    with opened(tmp_path, AbortsConnections) as env:
        assert isinstance(env.outside, AbortsConnections)
        outreach = env.worker()
        prospect = outreach.import_prospect(**ANNA)["id"]
        with pytest.raises(OSError, match="Connection unexpectedly closed"):
            outreach.send_email(prospect)
        assert outreach.send_email(prospect) == {"skipped": True, "reason": "send_in_progress"}  # it may be under way
        env.outside.aborts = False
        env.clock.advance("301s")
        assert outreach.send_email(prospect) == {"sent": True}
        assert len(env.kept("SELECT 1 FROM mails")) == len(env.rows("SELECT 1 FROM emails")) == 1


@pytest.mark.mission("C1")
def test_if_the_server_does_not_know_the_mail_is_parked_and_shown_as_unknown_until_a_person_resolves_it(
    env: Environment,
) -> None:
    outreach = env.worker()
    prospect = outreach.import_prospect(**ANNA)["id"]
    env.outside.loses_answers, env.outside.can_tell = True, False
    with pytest.raises(OSError, match="Connection unexpectedly closed"):
        outreach.send_email(prospect)
    env.clock.advance("301s")
    env.outside.loses_answers = False
    for worker in (outreach, env.worker()):
        assert worker.send_email(prospect) == {"skipped": True, "reason": "unknown"}
    assert unknown(env.data) == [f"email:{prospect}"]
    outreach._email.resolve(applied(), prospect, "")
    assert outreach.send_email(prospect) == TODAY
    assert len(env.kept("SELECT 1 FROM mails")) == 1


@pytest.mark.mission("C1")
def test_a_refused_mail_was_not_sent_and_is_tried_again_immediately(env: Environment) -> None:
    outreach = env.worker()
    prospect = outreach.import_prospect(**ANNA)["id"]
    env.outside.refuses_mail = True
    with pytest.raises(Exception, match="not now"):
        outreach.send_email(prospect)
    env.outside.refuses_mail = False
    assert outreach.send_email(prospect) == {"sent": True}
    assert len(env.kept("SELECT 1 FROM mails")) == 1


@pytest.mark.mission("C1", "C3")
def test_an_address_that_is_refused_permanently_is_tried_once_a_day_and_blocks_no_other_mail(
    env: Environment,
) -> None:
    outreach = env.worker()
    lost = outreach.import_prospect(**ANNA | {"email": "unknown@osterholt.example"})["id"]
    strange = outreach.import_prospect(**BORIS | {"name": "Boris\r\nBcc: all@example.com"})["id"]
    refused = {"skipped": True, "reason": "address_refused"}
    assert [outreach.send_email(lost) for _ in range(2)] == [refused, refused]
    env.clock.advance("8h5m")
    assert env.worker().enrich(lost, "email") == {"enriched": True}  # a better address
    assert outreach.cron.tick().value == 1
    assert env.kept("SELECT prospect, recipient FROM mails") == [(strange, f"office@{strange}.example")]
    env.clock.advance("24h")
    assert outreach.send_email(lost) == {"sent": True}


@pytest.mark.mission("C3")
def test_a_mail_that_cannot_be_composed_blocks_no_other_mail(env: Environment) -> None:
    outreach = env.worker()
    outreach.import_prospect(**ANNA, contact_email="office@osterholt.example\r\nBcc: all@example.com")
    boris = outreach.import_prospect(**BORIS)["id"]
    env.clock.advance("8h5m")
    assert outreach.cron.tick().value == 1
    assert env.kept("SELECT prospect FROM mails") == [boris]


@pytest.mark.mission("C1")
def test_an_error_reply_to_quit_does_not_turn_a_sent_mail_into_a_refused_one(tmp_path: Path) -> None:
    with opened(tmp_path, RejectsQuit) as env:
        outreach = env.worker()
        prospect = outreach.import_prospect(**ANNA)["id"]
        assert outreach.send_email(prospect) == {"sent": True}
        assert outreach.send_email(prospect) == TODAY
        assert len(env.kept("SELECT 1 FROM mails")) == 1


@pytest.mark.mission("C1")
@pytest.mark.fault("F32")
def test_a_sender_that_was_suspended_before_it_began_to_send_does_not_send(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = env.worker()
    prospect = slow.import_prospect(**ANNA)["id"]
    machine, message_id = slow.once.engine.runtime, slow._message_id
    now = machine.monotonic

    def slowly() -> str:
        found = message_id()
        monkeypatch.setattr(machine, "monotonic", lambda: now() + 301)
        return found

    monkeypatch.setattr(slow, "_message_id", slowly)
    with pytest.raises(LeaseOverdue):
        slow.send_email(prospect)
    assert env.kept("SELECT 1 FROM mails") == []


@pytest.mark.mission("C1", "C10")
@pytest.mark.fault("F32")
def test_a_sender_that_was_suspended_for_longer_than_its_lease_may_send_again_and_that_is_counted_separately(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No lease can prevent this: the sender was replaced between its last check of the lease and the mail."""
    slow, other = env.worker(), env.worker()
    prospect = slow.import_prospect(**ANNA)["id"]
    pause, send = Pause(), slow._mails.send

    def late(mail: Any) -> None:
        pause.here()
        send(mail)

    monkeypatch.setattr(slow._mails, "send", late)
    raised: list[BaseException] = []

    def run() -> None:
        try:
            slow.send_email(prospect)
        except LeaseLost as lost:
            raised.append(lost)

    suspended = threading.Thread(target=run)
    suspended.start()
    pause.reached()
    env.clock.advance("301s")
    assert other.send_email(prospect) == {"sent": True}
    env.clock.advance("1s")
    pause.go()
    suspended.join(60)
    assert len(raised) == 1
    again, replaced = resent(env.data.mails())
    assert (len(again), len(replaced), len(set(env.kept("SELECT message_id FROM mails")))) == (0, 1, 1)
    assert env.rows("SELECT count(*) FROM emails") == [1]
    assert [found.wrong for found in audit(env.data) if found.wrong] == []

"""examples/outreach: a reply is processed once, and people are notified once."""

from __future__ import annotations

import httpx
import pytest

from tests.integration.outreach_cases import env, mail, together
from tests.integration.outreach_environment import ANNA, BORIS, Environment

__all__ = ["env"]  # fixtures, re-exported so that pytest finds them


@pytest.mark.mission("C4", "C10")
def test_a_reply_is_processed_once_and_people_are_notified_once(env: Environment) -> None:
    outreach = env.worker()
    prospect = outreach.import_prospect(**ANNA)["id"]
    assert outreach.receive(mail()) == {"processed": True}
    env.clock.advance("4000d")
    assert env.worker().receive(mail()) == {"duplicate": True}
    assert outreach.receive(mail(sender="another@else.example")) == {"duplicate": True}
    assert env.rows("SELECT prospect_id, direction, message_id FROM emails") == [(prospect, "inbound", "<a@b.example>")]
    assert env.rows("SELECT replies FROM prospects") == [1]
    assert env.kept("SELECT asked FROM alerts") == [1]


@pytest.mark.mission("C4")
def test_the_copy_of_a_reply_that_a_mailing_list_has_written_upon_is_a_duplicate(env: Environment) -> None:
    outreach = env.worker()
    outreach.receive(mail())
    assert outreach.receive(mail().replace(b"Subject: yes", b"Subject: [sales] yes")) == {"duplicate": True}
    assert env.kept("SELECT asked FROM alerts") == [1]


@pytest.mark.mission("C4")
def test_a_subject_with_lone_surrogates_does_not_prevent_the_notification_of_a_reply(env: Environment) -> None:
    reply = mail().replace(b"Subject: yes", b"Subject: =?utf-7?q?+2AA-?=")
    outreach = env.worker()
    assert [outreach.receive(reply) for _ in range(2)] == [{"processed": True}, {"duplicate": True}]
    assert env.kept("SELECT asked FROM alerts") == [1]


@pytest.mark.mission("C4")
def test_a_mail_without_a_message_id_is_processed_every_time(env: Environment) -> None:
    outreach = env.worker()
    for _ in range(2):
        assert outreach.receive(mail(None)) == {"processed": True}
    assert env.rows("SELECT message_id FROM emails") == [None, None]
    assert len(env.kept("SELECT 1 FROM alerts")) == 2


@pytest.mark.mission("C4")
def test_a_reply_that_was_stored_without_a_notification_is_notified_by_the_redelivery(env: Environment) -> None:
    outreach = env.worker()
    env.outside.loses_answers = True
    with pytest.raises(httpx.RemoteProtocolError):
        outreach.receive(mail())
    env.outside.loses_answers = False
    assert outreach.receive(mail()) == {"duplicate": True}
    assert outreach.receive(mail()) == {"duplicate": True}
    assert env.rows("SELECT count(*) FROM emails") == [1]
    assert env.kept("SELECT asked FROM alerts") == [2]  # two requests under one key, so one notification


@pytest.mark.mission("C4")
def test_of_three_concurrent_deliveries_of_a_reply_one_is_processed(env: Environment) -> None:
    workers = [env.worker() for _ in range(3)]
    answers = together([lambda worker=worker: worker.receive(mail()) for worker in workers])  # type: ignore[misc]  # binds the loop's value
    assert sorted(map(str, answers)) == ["{'duplicate': True}", "{'duplicate': True}", "{'processed': True}"]
    assert env.rows("SELECT count(*) FROM emails") == [1]
    assert env.kept("SELECT asked FROM alerts") == [1]


@pytest.mark.mission("C4")
def test_a_reply_belongs_to_the_prospect_whose_mail_it_answers_and_our_own_mail_is_not_a_reply(
    env: Environment,
) -> None:
    outreach = env.worker()
    anna, _boris = (outreach.import_prospect(**who)["id"] for who in (ANNA, BORIS))
    outreach.send_email(anna)
    [(sent, raw)] = env.kept("SELECT message_id, raw FROM mails")
    assert outreach.receive(raw) == {"duplicate": True}  # it came back to us
    answer = f"In-Reply-To:\r\n {sent}\r\n".encode() + mail("<b@b.example>", BORIS["email"])
    assert outreach.receive(answer) == {"processed": True}
    assert env.rows("SELECT prospect_id FROM emails WHERE direction = 'inbound'") == [anna]
    assert len(env.kept("SELECT 1 FROM alerts")) == 1

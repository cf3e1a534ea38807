"""examples/outreach: a reply is processed once, and people are told once."""

from __future__ import annotations

import httpx
import pytest

from tests.integration.outreach_cases import mail, together, world
from tests.integration.outreach_world import ANNA, BORIS, World

__all__ = ["world"]  # fixtures, told here so that pytest finds them


@pytest.mark.mission("C4", "C10")
def test_a_reply_is_processed_once_for_ever_and_people_are_told_once(world: World) -> None:
    outreach = world.worker()
    prospect = outreach.import_prospect(**ANNA)["id"]
    assert outreach.receive(mail()) == {"processed": True}
    world.clock.advance("4000d")
    assert world.worker().receive(mail()) == {"duplicate": True}
    assert outreach.receive(mail(sender="somebody@else.example")) == {"duplicate": True}
    assert world.rows("SELECT prospect_id, direction, message_id FROM emails") == [
        (prospect, "inbound", "<a@b.example>")
    ]
    assert world.rows("SELECT replies FROM prospects") == [1]
    assert world.kept("SELECT asked FROM alerts") == [1]


@pytest.mark.mission("C4")
def test_the_copy_of_a_reply_that_a_mailing_list_has_written_upon_is_a_duplicate(world: World) -> None:
    outreach = world.worker()
    outreach.receive(mail())
    assert outreach.receive(mail().replace(b"Subject: yes", b"Subject: [sales] yes")) == {"duplicate": True}
    assert world.kept("SELECT asked FROM alerts") == [1]


@pytest.mark.mission("C4")
def test_a_subject_in_a_charset_that_can_write_half_characters_keeps_no_reply_from_being_told(world: World) -> None:
    reply = mail().replace(b"Subject: yes", b"Subject: =?utf-7?q?+2AA-?=")
    outreach = world.worker()
    assert [outreach.receive(reply) for _ in range(2)] == [{"processed": True}, {"duplicate": True}]
    assert world.kept("SELECT asked FROM alerts") == [1]


@pytest.mark.mission("C4")
def test_a_mail_without_a_message_id_is_welcome_every_time(world: World) -> None:
    outreach = world.worker()
    for _ in range(2):
        assert outreach.receive(mail(None)) == {"processed": True}
    assert world.rows("SELECT message_id FROM emails") == [None, None]
    assert len(world.kept("SELECT 1 FROM alerts")) == 2


@pytest.mark.mission("C4")
def test_a_reply_that_was_stored_but_of_which_nobody_was_told_is_told_by_the_redelivery(world: World) -> None:
    outreach = world.worker()
    world.outside.loses_answers = True
    with pytest.raises(httpx.RemoteProtocolError):
        outreach.receive(mail())
    world.outside.loses_answers = False
    assert outreach.receive(mail()) == {"duplicate": True}
    assert outreach.receive(mail()) == {"duplicate": True}
    assert world.rows("SELECT count(*) FROM emails") == [1]
    assert world.kept("SELECT asked FROM alerts") == [2]  # asked twice under one key, so told once


@pytest.mark.mission("C4")
def test_of_three_deliveries_of_a_reply_at_once_one_is_processed(world: World) -> None:
    workers = [world.worker() for _ in range(3)]
    answers = together([lambda worker=worker: worker.receive(mail()) for worker in workers])  # type: ignore[misc]  # binds the loop's value
    assert sorted(map(str, answers)) == ["{'duplicate': True}", "{'duplicate': True}", "{'processed': True}"]
    assert world.rows("SELECT count(*) FROM emails") == [1]
    assert world.kept("SELECT asked FROM alerts") == [1]


@pytest.mark.mission("C4")
def test_a_reply_is_that_of_the_prospect_whose_mail_it_answers_and_our_own_mail_is_none(world: World) -> None:
    outreach = world.worker()
    anna, _boris = (outreach.import_prospect(**who)["id"] for who in (ANNA, BORIS))
    outreach.send_email(anna)
    [(sent, raw)] = world.kept("SELECT message_id, raw FROM mails")
    assert outreach.receive(raw) == {"duplicate": True}  # it came back to us
    answer = f"In-Reply-To:\r\n {sent}\r\n".encode() + mail("<b@b.example>", BORIS["email"])
    assert outreach.receive(answer) == {"processed": True}
    assert world.rows("SELECT prospect_id FROM emails WHERE direction = 'inbound'") == [anna]
    assert len(world.kept("SELECT 1 FROM alerts")) == 1

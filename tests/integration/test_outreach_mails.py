"""examples/outreach: a prospect gets one mail a day, through lost answers, refusals and senders that stood still."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from examples.outreach.audit import audit, resent, unknown
from onceward import LeaseLost, applied
from onceward.errors import LeaseOverdue
from tests.clients import Pause
from tests.integration.outreach_cases import TODAY, world
from tests.integration.outreach_world import ANNA, BORIS, Deaf, Dying, Paused, Rude, World, opened

__all__ = ["world"]  # fixtures, told here so that pytest finds them


@pytest.mark.mission("C1", "C10")
def test_a_prospect_gets_one_mail_a_day_whatever_its_text_also_after_a_restart(world: World) -> None:
    first = world.worker()
    anna, boris = (first.import_prospect(**who)["id"] for who in (ANNA, BORIS))
    assert first.send_email(anna, "hello") == {"sent": True}
    assert first.send_email(anna, "quite another text") == TODAY
    assert first.send_email(boris, "hello") == {"sent": True}
    first.close()
    again = world.worker()
    assert again.send_email(anna, "after a restart") == TODAY
    world.clock.advance("23h")
    assert again.send_email(anna) == TODAY
    world.clock.advance("1h")
    assert again.send_email(anna, "a day later") == {"sent": True}
    assert world.kept("SELECT prospect FROM mails") == [anna, boris, anna]
    assert len(set(world.kept("SELECT message_id FROM mails"))) == 3
    assert [found.wrong for found in audit(world.data) if found.wrong] == []


@pytest.mark.mission("C1")
def test_while_a_mail_is_being_sent_another_is_told_so(tmp_path: Path) -> None:
    with opened(tmp_path, Paused) as world:
        assert isinstance(world.outside, Paused)
        outreach, other = world.worker(), world.worker()
        prospect = outreach.import_prospect(**ANNA)["id"]
        answers: list[Any] = []
        sending = threading.Thread(target=lambda: answers.append(outreach.send_email(prospect)))
        sending.start()
        world.outside.pause.reached()
        world.clock.advance("299s")
        assert other.send_email(prospect) == {"skipped": True, "reason": "send_in_progress"}
        world.outside.pause.go()
        sending.join(60)
        assert answers == [{"sent": True}]
        assert other.send_email(prospect) == TODAY
        assert len(world.kept("SELECT 1 FROM mails")) == 1


@pytest.mark.mission("C1")
def test_a_mail_that_was_taken_without_an_answer_is_found_by_its_message_id_and_not_sent_again(world: World) -> None:
    outreach = world.worker()
    prospect = outreach.import_prospect(**ANNA)["id"]
    world.outside.loses_answers = True
    with pytest.raises(OSError, match="Connection unexpectedly closed"):
        outreach.send_email(prospect)
    assert world.rows("SELECT count(*) FROM emails") == [0]
    world.outside.loses_answers = False
    world.clock.advance("301s")
    assert world.worker().send_email(prospect) == TODAY
    [sent] = world.kept("SELECT message_id FROM mails")
    assert world.rows("SELECT prospect_id, direction, message_id FROM emails") == [(prospect, "outbound", sent)]


@pytest.mark.mission("C1")
@pytest.mark.parametrize("last_words", [b"25", b"2", b"no answer\r\n", b"250 " + b"x" * 10_000])
def test_half_an_answer_of_a_server_that_died_is_no_refusal(tmp_path: Path, last_words: bytes) -> None:
    with opened(tmp_path, Dying) as world:
        assert isinstance(world.outside, Dying)
        outreach = world.worker()
        prospect = outreach.import_prospect(**ANNA)["id"]
        world.outside.last_words = last_words
        with pytest.raises(OSError, match="invalid reply of the mail server"):
            outreach.send_email(prospect)
        world.outside.last_words = b""
        assert outreach.send_email(prospect) == {"skipped": True, "reason": "send_in_progress"}
        world.clock.advance("301s")
        assert outreach.send_email(prospect) == TODAY
        assert len(world.kept("SELECT 1 FROM mails")) == len(world.rows("SELECT 1 FROM emails")) == 1


@pytest.mark.mission("C1")
def test_a_mail_that_never_arrived_is_sent_once_the_server_says_so(tmp_path: Path) -> None:
    with opened(tmp_path, Deaf) as world:
        assert isinstance(world.outside, Deaf)
        outreach = world.worker()
        prospect = outreach.import_prospect(**ANNA)["id"]
        with pytest.raises(OSError, match="Connection unexpectedly closed"):
            outreach.send_email(prospect)
        assert outreach.send_email(prospect) == {"skipped": True, "reason": "send_in_progress"}  # it may be under way
        world.outside.deaf = False
        world.clock.advance("301s")
        assert outreach.send_email(prospect) == {"sent": True}
        assert len(world.kept("SELECT 1 FROM mails")) == len(world.rows("SELECT 1 FROM emails")) == 1


@pytest.mark.mission("C1")
def test_if_the_server_cannot_tell_the_mail_is_parked_and_shown_as_unknown_until_a_person_says(world: World) -> None:
    outreach = world.worker()
    prospect = outreach.import_prospect(**ANNA)["id"]
    world.outside.loses_answers, world.outside.can_tell = True, False
    with pytest.raises(OSError, match="Connection unexpectedly closed"):
        outreach.send_email(prospect)
    world.clock.advance("301s")
    world.outside.loses_answers = False
    for worker in (outreach, world.worker()):
        assert worker.send_email(prospect) == {"skipped": True, "reason": "unknown"}
    assert unknown(world.data) == [f"email:{prospect}"]
    outreach._email.resolve(applied(), prospect, "")
    assert outreach.send_email(prospect) == TODAY
    assert len(world.kept("SELECT 1 FROM mails")) == 1


@pytest.mark.mission("C1")
def test_a_refused_mail_was_not_sent_and_is_tried_again_at_once(world: World) -> None:
    outreach = world.worker()
    prospect = outreach.import_prospect(**ANNA)["id"]
    world.outside.refuses_mail = True
    with pytest.raises(Exception, match="not now"):
        outreach.send_email(prospect)
    world.outside.refuses_mail = False
    assert outreach.send_email(prospect) == {"sent": True}
    assert len(world.kept("SELECT 1 FROM mails")) == 1


@pytest.mark.mission("C1", "C3")
def test_an_address_that_is_refused_for_good_is_tried_once_a_day_and_keeps_nobody_else_from_their_mail(
    world: World,
) -> None:
    outreach = world.worker()
    lost = outreach.import_prospect(**ANNA | {"email": "unknown@osterholt.example"})["id"]
    strange = outreach.import_prospect(**BORIS | {"name": "Boris\r\nBcc: all@example.com"})["id"]
    refused = {"skipped": True, "reason": "address_refused"}
    assert [outreach.send_email(lost) for _ in range(2)] == [refused, refused]
    world.clock.advance("8h5m")
    assert world.worker().enrich(lost, "email") == {"enriched": True}  # a better address
    assert outreach.cron.tick().value == 1
    assert world.kept("SELECT prospect, recipient FROM mails") == [(strange, f"office@{strange}.example")]
    world.clock.advance("24h")
    assert outreach.send_email(lost) == {"sent": True}


@pytest.mark.mission("C3")
def test_a_mail_that_cannot_even_be_written_keeps_nobody_else_from_theirs(world: World) -> None:
    outreach = world.worker()
    outreach.import_prospect(**ANNA, contact_email="office@osterholt.example\r\nBcc: all@example.com")
    boris = outreach.import_prospect(**BORIS)["id"]
    world.clock.advance("8h5m")
    assert outreach.cron.tick().value == 1
    assert world.kept("SELECT prospect FROM mails") == [boris]


@pytest.mark.mission("C1")
def test_a_rude_goodbye_does_not_make_a_sent_mail_a_refused_one(tmp_path: Path) -> None:
    with opened(tmp_path, Rude) as world:
        outreach = world.worker()
        prospect = outreach.import_prospect(**ANNA)["id"]
        assert outreach.send_email(prospect) == {"sent": True}
        assert outreach.send_email(prospect) == TODAY
        assert len(world.kept("SELECT 1 FROM mails")) == 1


@pytest.mark.mission("C1")
@pytest.mark.fault("F32")
def test_a_sender_that_stood_still_before_it_has_begun_to_send_does_not_send(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = world.worker()
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
    assert world.kept("SELECT 1 FROM mails") == []


@pytest.mark.mission("C1", "C10")
@pytest.mark.fault("F32")
def test_a_sender_that_stood_still_for_longer_than_its_lease_may_send_once_more_and_that_is_counted_apart(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What no lease can prevent: it was replaced between its last look at the lease and the mail."""
    slow, other = world.worker(), world.worker()
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

    standing_still = threading.Thread(target=run)
    standing_still.start()
    pause.reached()
    world.clock.advance("301s")
    assert other.send_email(prospect) == {"sent": True}
    world.clock.advance("1s")
    pause.go()
    standing_still.join(60)
    assert len(raised) == 1
    again, apart = resent(world.data.mails())
    assert (len(again), len(apart), len(set(world.kept("SELECT message_id FROM mails")))) == (0, 1, 1)
    assert world.rows("SELECT count(*) FROM emails") == [1]
    assert [found.wrong for found in audit(world.data) if found.wrong] == []

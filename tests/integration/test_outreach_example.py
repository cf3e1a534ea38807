"""examples/outreach: what the seed document says about it, with real mails, real files and several workers."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from examples.outreach.app import PATTERN, Outreach
from examples.outreach.audit import audit, resent, unknown
from onceward import LeaseLost, LeaseOverdue, State, applied
from tests.faces import Pause
from tests.integration.outreach_world import ANNA, BORIS, Deaf, Dying, Paused, Rude, World, opened

ROOT = Path(__file__).resolve().parents[2]
HERE = ROOT / "examples" / "outreach"
TODAY = {"skipped": True, "reason": "already_emailed_today"}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with opened(tmp_path) as world:
        yield world


def together(work: list[Callable[[], Any]]) -> list[Any]:
    line, answers = threading.Barrier(len(work)), []

    def run(one: Callable[[], Any]) -> None:
        line.wait(20)
        answers.append(one())

    threads = [threading.Thread(target=run, args=(one,)) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return answers


def mail(message_id: str | None = "<a@b.example>", sender: str = ANNA["email"]) -> bytes:
    named = f"Message-ID: {message_id}\r\n" if message_id else ""
    return f"{named}From: {sender}\r\nSubject: yes\r\n\r\nPlease do.\r\n".encode()


# ── the document's own test cases ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mission("C1")
def test_should_not_send_duplicate_emails(world: World) -> None:
    outreach = world.worker()
    prospect = outreach.import_prospect(**ANNA)["id"]
    assert outreach.send_email(prospect)["sent"] is True
    second = outreach.send_email(prospect)
    assert second["skipped"] is True
    assert second["reason"] == "already_emailed_today"
    assert world.rows(f"SELECT count(*) FROM emails WHERE prospect_id = '{prospect}'") == [1]
    assert world.kept("SELECT recipient FROM mails") == [ANNA["email"]]


@pytest.mark.mission("C1")
def test_should_handle_concurrent_sends_gracefully(world: World) -> None:
    workers = [world.worker() for _ in range(3)]
    prospect = workers[0].import_prospect(**ANNA)["id"]
    results = together([lambda worker=worker: worker.send_email(prospect) for worker in workers])  # type: ignore[misc]  # binds the loop's value
    assert len([result for result in results if result.get("sent")]) == 1
    assert len(results) == 3
    assert world.rows("SELECT count(*) FROM emails") == [1]
    assert len(world.kept("SELECT 1 FROM mails")) == 1


# ── C1: e-mails ─────────────────────────────────────────────────────────────────────────────────────────────────────


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
        with pytest.raises(OSError, match="the mail server said"):
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
    lost = outreach.import_prospect(**ANNA | {"email": "nobody@osterholt.example"})["id"]
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
    machine, message_id = slow.once.engine.world, slow._message_id
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


# ── C2, C3: locks and cron ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mission("C2")
def test_with_lock_gives_nothing_when_it_is_taken(world: World) -> None:
    first, second = world.worker(), world.worker()
    answers: list[Any] = []

    def work() -> str:
        answers.append(second.with_lock("sync", lambda: "second"))
        return "first"

    assert first.with_lock("sync", work) == "first"
    assert answers == [None]
    assert second.with_lock("sync", lambda: "later") == "later"


@pytest.mark.mission("C3", "C10")
def test_a_run_of_cron_happens_once_among_all_machines_and_a_restart_sends_nothing_again(world: World) -> None:
    workers = [world.worker() for _ in range(3)]
    for who in (ANNA, BORIS):
        workers[0].import_prospect(**who)
    world.clock.advance("8h5m")  # Thursday, 2026-01-01
    outcomes = together([worker.cron.tick for worker in workers])
    assert sum(outcome.executed for outcome in outcomes) == 1
    workers[0].close()
    restarted = world.worker()
    assert restarted.cron.tick().replayed
    assert restarted.cron.tick("2026-01-01T08:05:00Z").replayed
    world.clock.advance("5m")
    assert restarted.cron.tick().value == 0  # another slot, but nobody is due
    assert world.rows("SELECT pattern, scheduled_at, sent FROM runs ORDER BY 2") == [
        (PATTERN, "2026-01-01T08:05:00.000000+00:00", 2),
        (PATTERN, "2026-01-01T08:10:00.000000+00:00", 0),
    ]
    assert len(world.kept("SELECT 1 FROM mails")) == 2
    world.clock.advance("14h")  # 22:10: the pattern ends at 18:55, so a fire is for that slot
    assert restarted.cron.tick().value == 0
    assert world.rows("SELECT max(scheduled_at) FROM runs") == ["2026-01-01T18:55:00.000000+00:00"]


DIES = """
import os, sys
from examples.outreach.app import Outreach
from onceward.stores.sqlite import SQLiteStore
from onceward.testing import FakeClock

database, file, smtp, api, now = sys.argv[1:]
clock = FakeClock(int(now))
outreach = Outreach(database, smtp=smtp, api=api, store=SQLiteStore(file, clock=clock), clock=clock)
outreach._sent = lambda *_: os.kill(os.getpid(), 9)
outreach.cron.tick()
"""


@pytest.mark.mission("C1", "C3", "C10")
def test_a_run_whose_worker_was_killed_behind_a_mail_is_free_after_600_seconds_and_sends_that_mail_no_more(
    world: World,
) -> None:
    outreach = world.worker()
    for who in (ANNA, BORIS):
        outreach.import_prospect(**who)
    world.clock.advance("8h5m")
    place = [world.database, f"{world.folder}/outreach.db", world.outside.smtp, world.outside.api]
    child = subprocess.run([sys.executable, "-c", DIES, *place, str(world.clock.now())], cwd=ROOT, check=False)
    assert child.returncode == -signal.SIGKILL
    slot = "2026-01-01T08:05:00Z"
    world.clock.advance("599s")
    assert outreach.cron.tick(slot).reason == "running"
    world.clock.advance("1s")
    assert outreach.cron.tick(slot).value == 1  # the other one had been sent
    assert sorted(world.kept("SELECT prospect FROM mails")) == sorted(world.rows("SELECT id FROM prospects"))
    assert [found.wrong for found in audit(world.data) if found.wrong] == []


@pytest.mark.mission("C3")
def test_a_failed_run_is_recorded_and_not_run_again_unless_asked(world: World) -> None:
    outreach = world.worker()
    outreach.import_prospect(**ANNA)
    world.clock.advance("8h5m")
    world.outside.refuses_mail = True
    assert [outreach.cron.tick().reason for _ in range(2)] == ["failed", "failed"]
    world.outside.refuses_mail = False
    world.clock.advance("1h")
    slot = "2026-01-01T08:05:00Z"
    assert outreach.cron.tick(slot).reason == "failed"
    entry = outreach.cron.read(slot)
    assert entry is not None
    assert entry.state is State.FAILED
    assert world.kept("SELECT 1 FROM mails") == []
    assert outreach.cron.tick(slot, rerun=True).value == 1
    assert len(world.kept("SELECT 1 FROM mails")) == 1


# ── C4: replies ─────────────────────────────────────────────────────────────────────────────────────────────────────


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


# ── C5: imports ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mission("C5")
def test_an_imported_row_is_created_updated_or_skipped_and_says_whose_it_is(world: World) -> None:
    outreach = world.worker()
    created = outreach.import_prospect(**ANNA)
    assert created["action"] == "created"
    same = {"id": created["id"]}
    assert outreach.import_prospect(**ANNA) == same | {"action": "skipped"}
    assert outreach.import_prospect(email="Anna@Osterholt.Example", city="Hamburg") == same | {"action": "updated"}
    nameless = {"name": "OSTERHOLT, Anna", "city": "Bremen", "country": "DE"}
    assert outreach.import_prospect(**nameless) == same | {"action": "updated"}
    assert outreach.import_prospect(**BORIS)["action"] == "created"
    assert outreach.import_prospect(email="no address")["action"] == "skipped"
    assert world.rows("SELECT name, email FROM prospects ORDER BY email") == [
        ("OSTERHOLT, Anna", "anna@osterholt.example"),
        ("Boris Wrona", "boris@wrona.example"),
    ]


@pytest.mark.mission("C5", "C7")
def test_the_same_file_again_changes_no_column(world: World) -> None:
    outreach = world.worker()
    first = outreach.import_prospects(HERE / "files" / "prospects.csv")
    assert (first.counts.created, first.counts.updated) == (4, 2)
    everything = "SELECT * FROM prospects ORDER BY id"
    before = world.rows(everything)
    world.clock.advance("1h")
    assert world.worker().import_prospects(HERE / "files" / "prospects.csv").replayed
    renamed = world.folder / "renamed.csv"
    renamed.write_bytes((HERE / "files" / "prospects.csv").read_bytes())
    outreach.import_prospects(renamed, name="prospects.csv")
    assert world.rows(everything) == before
    assert len(before) == 4


@pytest.mark.mission("C5", "C7")
def test_whoever_publishes_an_older_version_of_a_prospect_last_changes_nothing_and_what_was_found_stays(
    world: World,
) -> None:
    outreach = world.worker()
    id = outreach.import_prospect(**ANNA)["id"]
    older = outreach.people.get(id)
    assert older is not None
    outreach.enrich(id, "website")
    world.clock.advance("1s")
    assert outreach.import_prospect(**ANNA | {"city": "Hamburg"})["action"] == "updated"
    with outreach.people.transaction() as tx:
        outreach._publish(tx, older)
    assert world.rows("SELECT city, website FROM prospects") == [("Hamburg", f"https://{id}.example")]


@pytest.mark.mission("C1", "C5")
def test_two_prospects_that_turn_out_to_be_one_are_one_and_get_one_mail(world: World) -> None:
    outreach = world.worker()
    one = outreach.import_prospect(email="anna@osterholt.example", name="Anna Osterholt")["id"]
    other = outreach.import_prospect(email="info@osterholt.example", name="Front desk")["id"]
    assert one != other
    assert outreach.send_email(other) == {"sent": True}
    outreach.receive(mail(sender="info@osterholt.example"))
    merged = outreach.people.accept(one, other, who="a person").id
    outreach.import_prospects(HERE / "files" / "prospects.csv")
    assert [id for id in world.rows("SELECT id FROM prospects") if id in (one, other)] == [merged]
    assert world.rows("SELECT DISTINCT prospect_id FROM emails") == [merged]
    assert outreach.send_email(merged) == TODAY
    assert [found.wrong for found in audit(world.data) if found.wrong] == []


@pytest.mark.mission("C1", "C5")
def test_a_row_that_makes_two_prospects_one_moves_their_mails(world: World) -> None:
    outreach = world.worker()
    anna = outreach.import_prospect(**ANNA)["id"]
    desk = outreach.import_prospect(name="Front desk", external_id="7", contact_email="desk@osterholt.example")["id"]
    assert outreach.send_email(desk) == {"sent": True}
    merged = outreach.import_prospect(email=ANNA["email"], external_id="7")["id"]
    assert merged in (anna, desk)
    assert world.rows("SELECT id FROM prospects") == world.rows("SELECT prospect_id FROM emails") == [merged]
    assert outreach.send_email(merged) == TODAY


# ── C6: enrichment ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mission("C6")
def test_an_enrichment_is_tried_once_a_day_unless_the_data_is_there(world: World) -> None:
    outreach = world.worker()
    id = outreach.import_prospect(**ANNA)["id"]
    world.outside.directory_is_up = False
    for _ in range(2):
        assert outreach.enrich(id, "website") == {"skipped": True, "reason": "tried_recently"}
    world.outside.directory_is_up = True
    assert outreach.enrich(id, "website") == {"skipped": True, "reason": "tried_recently"}
    assert outreach.enrich(id, "email") == {"enriched": True}
    assert outreach.enrich(id, "email") == {"skipped": True, "reason": "already_known"}
    world.clock.advance("24h")
    assert world.worker().enrich(id, "website") == {"enriched": True}
    assert world.kept("SELECT type FROM lookups") == ["website", "email", "website"]
    assert world.rows("SELECT website, contact_email FROM prospects") == [
        (f"https://{id}.example", f"office@{id}.example")
    ]
    assert world.rows("SELECT type, found IS NULL FROM enrichments ORDER BY token") == [
        ("website", 1),
        ("email", 0),
        ("website", 0),
    ]


@pytest.mark.mission("C6")
def test_of_three_enrichments_at_once_the_directory_is_asked_by_one(world: World) -> None:
    workers = [world.worker() for _ in range(3)]
    id = workers[0].import_prospect(**ANNA)["id"]
    answers = together([lambda worker=worker: worker.enrich(id, "website") for worker in workers])  # type: ignore[misc]  # binds the loop's value
    assert answers.count({"enriched": True}) == 1
    assert len(world.kept("SELECT 1 FROM lookups")) == len(world.rows("SELECT 1 FROM enrichments")) == 1


@pytest.mark.mission("C6")
def test_what_an_import_knows_is_not_looked_up(world: World) -> None:
    outreach = world.worker()
    id = outreach.import_prospect(**ANNA, website="https://osterholt.example")["id"]
    assert outreach.enrich(id, "website") == {"skipped": True, "reason": "already_known"}
    assert world.kept("SELECT 1 FROM lookups") == []


# ── C7, C8, C9: upserts, charges, windows ───────────────────────────────────────────────────────────────────────────


@pytest.mark.mission("C7", "C10")
def test_everything_delivered_again_changes_no_column_of_any_table(world: World) -> None:
    def deliver(outreach: Outreach) -> None:
        for who in (ANNA, BORIS):
            id = outreach.import_prospect(**who)["id"]
            outreach.enrich(id, "website")
            outreach.send_email(id)
        outreach.receive(mail())
        outreach.charge("acme", 7, 1900)
        outreach.cron.tick("2026-01-01T08:05:00Z")

    world.clock.advance("8h5m")
    deliver(world.worker())
    contents = [f"SELECT * FROM {table} ORDER BY 1, 2" for table in ("prospects", "emails", "enrichments", "runs")]
    before = [world.rows(statement) for statement in contents]
    world.clock.advance("1h")
    deliver(world.worker())
    assert [world.rows(statement) for statement in contents] == before
    assert all(before)


@pytest.mark.mission("C3", "C4", "C6")
def test_rows_and_the_record_of_their_work_are_committed_together(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is killed just behind a commit has done all of it: looked at just there."""
    outreach = world.worker()
    prospect = outreach.import_prospect(**ANNA)["id"]
    world.clock.advance("8h5m")
    transaction, done = outreach.people.transaction, list[str]()

    @contextmanager
    def watched() -> Iterator[Any]:
        with transaction() as tx:
            yield tx
        done[:] = world.rows("SELECT key FROM onceward_records WHERE state = 'COMPLETED'")

    monkeypatch.setattr(outreach.people, "transaction", watched)
    outreach.receive(mail())
    assert "reply:<a@b.example>" in done
    outreach.enrich(prospect, "website")
    assert f"enrich:{prospect}:website" in done
    outreach.cron.tick()
    assert "2026-01-01T08:05Z" in done


@pytest.mark.mission("C8")
def test_a_charge_that_is_tried_again_is_the_same_charge(world: World) -> None:
    outreach = world.worker()
    world.outside.loses_answers = True
    with pytest.raises(httpx.RemoteProtocolError):
        outreach.charge("acme", 7, 1900)
    world.outside.loses_answers = False
    world.clock.advance("2d")  # the provider's webhook is redelivered late: no clock in the key
    receipt = world.worker().charge("acme", 7, 1900)
    assert outreach.charge("acme", 7, 1900) == receipt
    assert outreach.charge("acme", 8, 1900) != receipt
    assert world.kept("SELECT asked FROM charges ORDER BY asked") == [1, 2]


@pytest.mark.mission("C9")
def test_its_windows_are_declared_in_one_table_that_the_command_lists(world: World) -> None:
    assert world.worker().windows() == [
        ("email", "lasting 1d", "email:{prospect_id}"),
        ("enrich", "lasting 1d since the attempt", "enrich:{prospect_id}:{type}"),
        ("reply", "forever", "reply:{message_id}"),
        ("notify", "forever", "notify:{reply_id}"),
        ("charge", "lasting 1w", "charge:{customer}:{invoice}"),
        ("cron", "lasting 1w1d", "cron:*/5 8-18 * * 1-6:{scheduled_at}"),
        ("import", "forever", "import:{email} or import:{name}:{city}"),
    ]
    run = subprocess.run(
        [sys.executable, "-m", "onceward.cli", "operations"], cwd=HERE, capture_output=True, text=True, check=True
    )
    assert {one["name"] for one in json.loads(run.stdout)} == {"email", "enrich", "reply", "notify", "charge"}


@pytest.mark.mission("C9")
def test_the_keys_in_the_store_are_those_of_the_table(world: World) -> None:
    outreach = world.worker()
    id = outreach.import_prospect(**ANNA)["id"]
    outreach.send_email(id)
    outreach.enrich(id, "website")
    outreach.receive(mail())
    outreach.charge("acme", 7, 1900)
    keys = world.rows("SELECT key FROM onceward_records ORDER BY created_at, key")
    assert {f"email:{id}", f"enrich:{id}:website", "reply:<a@b.example>", "charge:acme:7"} < set(keys)


# ── C10: the audit ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mission("C10")
def test_a_morning_with_everything_twice_passes_all_sixteen_lines() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "examples.outreach"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
    first, second = run.stdout.split("second delivery")
    assert "email     {'skipped': True, 'reason': 'already_emailed_today'}" in first
    assert "reply1    {'processed': True}" in first
    assert "reply1    {'duplicate': True}" in second
    assert "reply3    {'processed': True}" in second
    assert "import    nothing to do" in second
    assert run.stdout.count("✓") == 16
    assert "mails    4\ncharges  1\nalerts   4\n" in run.stdout

"""examples/outreach: prospects that are imported, found to be one, and enriched."""

from __future__ import annotations

import pytest

from examples.outreach.audit import audit
from tests.integration.outreach_cases import HERE, TODAY, mail, together, world
from tests.integration.outreach_world import ANNA, BORIS, World

__all__ = ["world"]  # fixtures, told here so that pytest finds them


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

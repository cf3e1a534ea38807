"""examples/outreach: prospects that are imported, merged and enriched."""

from __future__ import annotations

import pytest

from examples.outreach.audit import audit
from tests.integration.outreach_cases import HERE, TODAY, env, mail, together
from tests.integration.outreach_environment import ANNA, BORIS, Environment

__all__ = ["env"]  # fixtures, re-exported so that pytest finds them


# ── C5: imports ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mission("C5")
def test_an_imported_row_is_created_updated_or_skipped_and_says_whose_it_is(env: Environment) -> None:
    outreach = env.worker()
    created = outreach.import_prospect(**ANNA)
    assert created["action"] == "created"
    same = {"id": created["id"]}
    assert outreach.import_prospect(**ANNA) == same | {"action": "skipped"}
    assert outreach.import_prospect(email="Anna@Osterholt.Example", city="Hamburg") == same | {"action": "updated"}
    nameless = {"name": "OSTERHOLT, Anna", "city": "Bremen", "country": "DE"}
    assert outreach.import_prospect(**nameless) == same | {"action": "updated"}
    assert outreach.import_prospect(**BORIS)["action"] == "created"
    assert outreach.import_prospect(email="no address")["action"] == "skipped"
    assert env.rows("SELECT name, email FROM prospects ORDER BY email") == [
        ("OSTERHOLT, Anna", "anna@osterholt.example"),
        ("Boris Wrona", "boris@wrona.example"),
    ]


@pytest.mark.finding("N55")
def test_rows_without_name_and_address_are_not_one_prospect(env: Environment) -> None:
    outreach = env.worker()
    answers = [outreach.import_prospect(city=city) for city in ("Bremen", "Bremen", "Hamburg")]
    assert [(one["action"], one["id"]) for one in answers] == [("skipped", None)] * 3
    assert "neither" in answers[0]["reason"]
    assert env.rows("SELECT id FROM prospects") == []


@pytest.mark.mission("C5", "C7")
def test_the_same_file_again_changes_no_column(env: Environment) -> None:
    outreach = env.worker()
    first = outreach.import_prospects(HERE / "files" / "prospects.csv")
    assert (first.counts.created, first.counts.updated) == (4, 2)
    everything = "SELECT * FROM prospects ORDER BY id"
    before = env.rows(everything)
    env.clock.advance("4000d")
    assert env.worker().import_prospects(HERE / "files" / "prospects.csv").replayed
    renamed = env.folder / "renamed.csv"
    renamed.write_bytes((HERE / "files" / "prospects.csv").read_bytes())
    outreach.import_prospects(renamed, name="prospects.csv")
    assert env.rows(everything) == before
    assert len(before) == 4


@pytest.mark.mission("C5", "C7")
def test_an_older_version_of_a_prospect_that_arrives_late_changes_nothing_and_enriched_data_stays(
    env: Environment,
) -> None:
    outreach = env.worker()
    id = outreach.import_prospect(**ANNA)["id"]
    older = outreach.people.get(id)
    assert older is not None
    outreach.enrich(id, "website")
    env.clock.advance("1s")
    assert outreach.import_prospect(**ANNA | {"city": "Hamburg"})["action"] == "updated"
    with outreach.people.transaction() as tx:
        outreach._publish(tx, older)
    assert env.rows("SELECT city, website FROM prospects") == [("Hamburg", f"https://{id}.example")]


@pytest.mark.mission("C5")
def test_the_same_address_is_the_same_prospect_also_if_several_people_read_it(env: Environment) -> None:
    outreach = env.worker()
    first = outreach.import_prospect(email="info@osterholt.example", name="Front desk")
    again = outreach.import_prospect(email="info@osterholt.example", name="Anna Osterholt")
    assert (again["action"], again["id"]) == ("updated", first["id"])


@pytest.mark.mission("C1", "C5")
def test_two_prospects_that_turn_out_to_be_one_are_one_and_get_one_mail(env: Environment) -> None:
    outreach = env.worker()
    one = outreach.import_prospect(email="anna@osterholt.example", name="Anna Osterholt")["id"]
    other = outreach.import_prospect(email="info@osterholt.example", name="Front desk")["id"]
    assert one != other
    assert outreach.send_email(other) == {"sent": True}
    outreach.receive(mail(sender="info@osterholt.example"))
    merged = outreach.people.accept(one, other, who="a person").id
    outreach.import_prospects(HERE / "files" / "prospects.csv")
    assert [id for id in env.rows("SELECT id FROM prospects") if id in (one, other)] == [merged]
    assert env.rows("SELECT DISTINCT prospect_id FROM emails") == [merged]
    assert outreach.send_email(merged) == TODAY
    assert [found.wrong for found in audit(env.data) if found.wrong] == []


@pytest.mark.mission("C1", "C5")
def test_a_row_that_makes_two_prospects_one_moves_their_mails(env: Environment) -> None:
    outreach = env.worker()
    anna = outreach.import_prospect(**ANNA)["id"]
    desk = outreach.import_prospect(name="Front desk", external_id="7", contact_email="desk@osterholt.example")["id"]
    assert outreach.send_email(desk) == {"sent": True}
    merged = outreach.import_prospect(email=ANNA["email"], external_id="7")["id"]
    assert merged in (anna, desk)
    assert env.rows("SELECT id FROM prospects") == env.rows("SELECT prospect_id FROM emails") == [merged]
    assert outreach.send_email(merged) == TODAY


# ── C6: enrichment ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mission("C6")
def test_an_enrichment_is_tried_once_a_day_unless_the_data_is_there(env: Environment) -> None:
    outreach = env.worker()
    id = outreach.import_prospect(**ANNA)["id"]
    env.outside.directory_is_up = False
    for _ in range(2):
        assert outreach.enrich(id, "website") == {"skipped": True, "reason": "tried_recently"}
    env.outside.directory_is_up = True
    assert outreach.enrich(id, "website") == {"skipped": True, "reason": "tried_recently"}
    assert outreach.enrich(id, "email") == {"enriched": True}
    assert outreach.enrich(id, "email") == {"skipped": True, "reason": "already_known"}
    env.clock.advance("24h")
    assert env.worker().enrich(id, "website") == {"enriched": True}
    assert env.kept("SELECT type FROM lookups") == ["website", "email", "website"]
    assert env.rows("SELECT website, contact_email FROM prospects") == [
        (f"https://{id}.example", f"office@{id}.example")
    ]
    assert env.rows("SELECT type, found IS NULL FROM enrichments ORDER BY token") == [
        ("website", 1),
        ("email", 0),
        ("website", 0),
    ]


@pytest.mark.mission("C6")
def test_of_three_concurrent_enrichments_one_asks_the_directory(env: Environment) -> None:
    workers = [env.worker() for _ in range(3)]
    id = workers[0].import_prospect(**ANNA)["id"]
    answers = together([lambda worker=worker: worker.enrich(id, "website") for worker in workers])  # type: ignore[misc]  # binds the loop's value
    assert answers.count({"enriched": True}) == 1
    assert len(env.kept("SELECT 1 FROM lookups")) == len(env.rows("SELECT 1 FROM enrichments")) == 1


@pytest.mark.mission("C6")
def test_what_an_import_knows_is_not_looked_up(env: Environment) -> None:
    outreach = env.worker()
    id = outreach.import_prospect(**ANNA, website="https://osterholt.example")["id"]
    assert outreach.enrich(id, "website") == {"skipped": True, "reason": "already_known"}
    assert env.kept("SELECT 1 FROM lookups") == []

"""The statement resource: the response to each request, in both versions of the specification."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote_plus, urlencode

import pytest

from examples.learning.endpoint import IN_FLIGHT, PATH, Statements
from examples.learning.storage import open_storage
from onceward import StoreUnavailable
from onceward.http.messages import InboundRequest, Response
from onceward.warehouse import ComparesRows
from tests.learning.backends import server_of
from tests.learning.samples import JOHN, VERBS, statement, uuid, voiding
from tests.learning.test_equality import FULL, SAME


class Client:
    """Sends requests as a learning record provider does."""

    def __init__(self, resource: Statements, house: ComparesRows) -> None:
        self._resource = resource
        self.house = house

    def ask(
        self,
        method: str,
        body: Any = None,
        *,
        version: str | None = "1.0.3",
        credentials: str = "lms:secret",
        media: str = "application/json",
        path: str = PATH,
        **query: Any,
    ) -> Response:
        headers = {"Authorization": f"Basic {b64encode(credentials.encode()).decode()}", "Content-Type": media}
        if version is not None:
            headers["X-Experience-API-Version"] = version
        sent = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        return self._resource.respond(InboundRequest(method, headers, sent, path=path, query=urlencode(query)))

    def put(self, sent: dict[str, Any], **more: Any) -> int:
        return self.ask("PUT", sent, statementId=sent["id"], **more).status

    def get(self, **query: Any) -> Any:
        answer = self.ask("GET", **query)
        assert answer.status == 200, answer
        return json.loads(answer.body)

    def ids(self, **query: Any) -> list[str]:
        return [one["id"] for one in self.get(**query)["statements"]]


@pytest.fixture(params=["duckdb", "postgres"])
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Client]:
    with open_storage(tmp_path / "made", server_of(request)) as place:
        yield Client(Statements(place.learning, {"lms": "secret"}), place.learning.house)


def nested(depth: int) -> bytes:
    """Return JSON that can be parsed but is too deep to be traversed."""
    text = json.dumps(statement(result={"extensions": {"https://e.com/x": "deep"}}))
    return text.replace('"deep"', "[" * depth + "]" * depth).encode()


def headers(answer: Response) -> dict[str, str]:
    return dict(answer.headers)


@pytest.mark.mission("D1")
def test_put_stores_once_and_answers_204_each_time(client: Client) -> None:
    answers = [client.ask("PUT", statement(), statementId=uuid("s1")) for _ in range(3)]
    assert [one.status for one in answers] == [204, 204, 204]
    assert [headers(one).get("idempotency-replayed") for one in answers] == [None, "true", "true"]
    assert client.ids() == [uuid("s1")]


@pytest.mark.mission("D1")
def test_another_statement_under_the_same_id_is_a_conflict_and_changes_nothing(client: Client) -> None:
    client.put(statement())
    before = client.get(statementId=uuid("s1"))
    client.put(statement("at", timestamp="2026-03-01T12:00:00Z"))
    assert client.put(statement("at", timestamp="2026-03-01T12:00:00.001Z")) == 409, "with another timestamp"
    other = client.ask("PUT", statement(result={"success": True}), statementId=uuid("s1"))
    assert other.status == 409
    assert uuid("s1") in json.loads(other.body)["detail"]
    assert client.get(statementId=uuid("s1")) == before


@pytest.mark.mission("D1")
def test_the_same_statement_spelt_in_five_ways_is_stored_once(client: Client) -> None:
    assert client.put(FULL) == 204
    before = client.get(statementId=FULL["id"])
    assert [client.put(one) for one in SAME.values()] == [204] * 5
    assert client.get(statementId=FULL["id"]) == before, "the first one stays unchanged"
    assert client.ids() == [FULL["id"]]


def test_a_statement_that_was_fetched_may_be_sent_back(client: Client) -> None:
    """With everything that the server has set, including the timestamp."""
    client.put(statement())
    assert client.put(client.get(statementId=uuid("s1"))) == 204


def test_post_answers_the_ids_in_order_and_gives_ids_to_those_without(client: Client) -> None:
    nameless = {name: value for name, value in statement().items() if name != "id"}
    answer = client.ask("POST", [statement("a"), nameless, statement("b")])
    first, new, last = json.loads(answer.body)
    assert (answer.status, first, last) == (200, uuid("a"), uuid("b"))
    assert client.get(statementId=new)["actor"] == JOHN
    assert json.loads(client.ask("POST", statement("c")).body) == [uuid("c")]
    assert client.ask("POST", []).status == 200


@pytest.mark.mission("D1")
def test_a_batch_goes_in_whole_or_not_at_all(client: Client) -> None:
    client.put(statement("b"))
    conflict = [statement("a"), statement("b", result={"success": True}), statement("c")]
    assert client.ask("POST", conflict).status == 409
    invalid = [statement("a"), statement("c") | {"verb": "completed"}]
    assert client.ask("POST", invalid).status == 400
    twice = [statement("a"), statement("a")]
    assert client.ask("POST", twice).status == 400
    assert client.ids() == [uuid("b")]
    assert client.ask("POST", [statement("a"), statement("b")]).status == 200, "one known, one new"
    assert sorted(client.ids()) == sorted([uuid("a"), uuid("b")])


def test_what_the_server_sets_is_set_and_what_was_sent_comes_back(client: Client) -> None:
    client.put(FULL | {"authority": JOHN, "stored": "2001-01-01T00:00:00Z"})
    fetched = client.get(statementId=FULL["id"])
    assert fetched["authority"]["account"]["name"] == "lms", "the authenticated client, not the claimed one"
    assert fetched["stored"] > "2026"
    assert fetched["version"] == "1.0.0"
    assert fetched["context"]["contextActivities"]["parent"][0]["id"] == "https://example.com/p", "a list of one"
    same = ("actor", "verb", "object", "result", "timestamp")
    assert {name: fetched[name] for name in same} == {name: FULL[name] for name in same}


def test_a_timestamp_is_set_if_none_was_given(client: Client) -> None:
    client.put(statement())
    fetched = client.get(statementId=uuid("s1"))
    assert fetched["timestamp"] == fetched["stored"]


def test_voiding_hides_a_statement_from_queries_that_do_not_ask_for_voided_ones(client: Client) -> None:
    client.put(statement("s1"))
    client.put(statement("s2"))
    client.put(voiding("v", "s1"))
    assert client.ask("GET", statementId=uuid("s1")).status == 404
    assert client.get(voidedStatementId=uuid("s1"))["id"] == uuid("s1")
    assert client.ask("GET", voidedStatementId=uuid("s2")).status == 404
    assert sorted(client.ids()) == sorted([uuid("s2"), uuid("v")])
    assert client.put(statement("s1")) == 204, "still the same statement"
    assert client.put(statement("s1", result={"success": True})) == 409
    assert client.put(voiding("v", "s1")) == 204
    client.put(voiding("w", "v"))
    assert client.get(statementId=uuid("v"))["id"] == uuid("v"), "a voiding statement cannot be voided"


def test_a_statement_may_be_voided_before_it_comes(client: Client) -> None:
    client.put(voiding("v", "s1"))
    client.put(statement("s1"))
    assert client.ids() == [uuid("v")]


@pytest.mark.parametrize(
    ("asked", "answered"), [("1.0.3", "1.0.3"), ("1.0", "1.0.3"), ("1.0.9", "1.0.3"), ("2.0.0", "2.0.0")]
)
def test_both_versions_get_answers_in_their_own_format(client: Client, asked: str, answered: str) -> None:
    answer = client.ask("GET", version=asked)
    assert (answer.status, headers(answer)["x-experience-api-version"]) == (200, answered)


@pytest.mark.parametrize("version", [None, "", "0.95", "1.1.0", "3.0.0", "abc"])
def test_other_versions_are_refused(client: Client, version: str | None) -> None:
    answer = client.ask("PUT", statement(), statementId=uuid("s1"), version=version)
    assert answer.status == 400
    assert "x-experience-api-version" in headers(answer)
    assert client.ids() == []


@pytest.mark.parametrize("credentials", ["lms:wrong", "unknown:secret", "lms:", ":", ""])
def test_an_unknown_client_is_asked_for_a_password_and_stores_and_reads_nothing(
    client: Client, credentials: str
) -> None:
    answer = client.ask("PUT", statement(), statementId=uuid("s1"), credentials=credentials)
    assert answer.status == 401
    assert headers(answer)["www-authenticate"].startswith("Basic")
    assert client.ids() == []
    assert client.put(statement()) == 204
    for query in ({}, {"statementId": uuid("s1")}):
        refused = client.ask("GET", credentials=credentials, **query)
        assert (refused.status, uuid("s1") in refused.body.decode()) == (401, False)


@pytest.mark.finding("N57")
def test_about_needs_no_authentication(client: Client) -> None:
    answer = client.ask("GET", path="/xAPI/about", credentials="", version=None)
    assert json.loads(answer.body) == {"version": ["1.0.3", "2.0.0"]}
    assert headers(answer)["x-experience-api-version"] == "2.0.0"


@pytest.mark.mission("D2")
def test_the_page_shows_users_sources_and_statements_as_text(client: Client) -> None:
    hostile = "<script>alert(1)</script>"
    assert client.put(statement(actor={**JOHN, "name": hostile})) == 204
    assert client.ask("GET", path="/", credentials="").status == 401
    shown = client.ask("GET", path="/", version=None).body.decode()
    assert "1 users" in shown
    assert "1 statements" in shown
    assert "john@example.com</td><td>&lt;script&gt;alert(1)&lt;/script&gt;</td><td>xapi</td>" in shown
    assert uuid("s1") in shown
    assert hostile not in shown


def test_invalid_requests_are_refused_with_the_reason(client: Client) -> None:
    sent = statement()
    for answer, reason in (
        (client.ask("PUT", sent | {"verb": "completed"}, statementId=sent["id"]), "$.verb"),
        (client.ask("PUT", sent, statementId=uuid("other")), "the statement's own id"),
        (client.ask("PUT", sent), "not a UUID"),
        (client.ask("PUT", sent, statementId="7"), "not a UUID"),
        (client.ask("PUT", sent, statementId=sent["id"], mode="red"), "mode"),
        (client.ask("PUT", b"{", statementId=sent["id"]), "truncated"),
        (client.ask("PUT", b"[" * 100_000, statementId=sent["id"]), ""),
        (client.ask("PUT", nested(600), statementId=sent["id"]), "nested"),
        (client.ask("PUT", b'"\xed\xa0\x80"', statementId=sent["id"]), "utf-8"),
        (client.ask("PUT", sent, statementId=sent["id"], media="multipart/mixed"), "attachment"),
        (client.ask("POST", [sent, "text"]), "Expected `object`"),
        (client.ask("GET", statementId=sent["id"], verb=f"{VERBS}x"), "verb"),
        (client.ask("GET", mode="red"), "mode"),
        (client.ask("GET", format="canonical"), "canonical"),
        (client.ask("GET", agent="{"), "truncated"),
        (client.ask("GET", agent='{"name": "John"}'), "exactly one"),
        (client.ask("GET", since="yesterday"), "isoformat"),
        (client.ask("GET", limit="-1"), "limit"),
        (client.ask("GET", registration="7"), "match"),
    ):
        assert answer.status == 400, answer
        assert reason in json.loads(answer.body)["detail"]
    assert client.ask("DELETE").status == 405
    assert client.ask("GET", path="/xAPI/elsewhere").status == 404
    assert client.ask("GET", statementId=sent["id"]).status == 404
    assert client.ids() == []


def test_a_single_statement_says_when_it_was_stored(client: Client) -> None:
    client.put(statement())
    answer = client.ask("GET", statementId=uuid("s1"))
    assert headers(answer)["last-modified"].endswith("GMT")
    head = client.ask("HEAD", statementId=uuid("s1"))
    assert (head.status, head.body, headers(head)["last-modified"]) == (200, b"", headers(answer)["last-modified"])


def test_every_answer_says_until_when_statements_are_complete(client: Client) -> None:
    """The time is before now: a statement that is being stored already has its timestamp."""
    stored = client.ask("PUT", statement(), statementId=uuid("s1"))
    for answer in (client.ask("GET"), stored, client.ask("GET", statementId=uuid("s1")), client.ask("GET", limit="x")):
        through = headers(answer)["x-experience-api-consistent-through"]
        assert datetime.fromisoformat(through) <= datetime.now(UTC) - IN_FLIGHT


def test_filters_find_what_they_say(client: Client) -> None:
    mary = {"account": {"homePage": "https://lms.example.com", "name": "mary"}}
    registration = uuid("r")
    client.put(statement("a", context={"registration": registration.upper()}))
    client.put(statement("b", mary, verb={"id": f"{VERBS}passed"}))
    client.put(statement("c", object={"id": "https://example.com/other"}))
    a, b, c = map(uuid, "abc")
    assert client.ids() == [c, b, a], "the latest first"
    assert client.ids(ascending="true") == [a, b, c]
    assert client.ids(agent=json.dumps(mary)) == [b]
    assert client.ids(agent=json.dumps({"mbox": "mailto:john@EXAMPLE.com"})) == [c, a]
    assert client.ids(verb=f"{VERBS}passed") == [b]
    assert client.ids(activity="https://example.com/other") == [c]
    assert client.ids(registration=registration) == [a]
    middle = client.get(statementId=b)["stored"]
    assert client.ids(since=middle) == [c]
    assert client.ids(until=middle) == [b, a]
    assert client.ids(since=middle, verb=f"{VERBS}passed") == []


def test_an_agent_is_found_as_the_actor_as_the_object_and_in_a_group_of_either(client: Client) -> None:
    mary, team = {"mbox": "mailto:mary@example.com"}, {"objectType": "Group", "openid": "https://example.com/team"}
    client.put(statement("actor", mary))
    client.put(statement("object", object={"objectType": "Agent", **mary}))
    client.put(statement("member", {"objectType": "Group", "member": [JOHN, mary]}))
    client.put(statement("team", object={**team, "member": [mary]}))
    client.put(statement("unrelated"))
    assert client.ids(agent=json.dumps(mary)) == [uuid(name) for name in ("team", "member", "object", "actor")]
    assert client.ids(agent=json.dumps(team)) == [uuid("team")]
    assert client.ids(agent=json.dumps(mary), activity="https://example.com/uvm-101") == [uuid("member"), uuid("actor")]


def test_pages_lead_to_all_of_them(client: Client) -> None:
    names = [uuid(f"s{n}") for n in range(7)]
    assert client.ask("POST", [statement(f"s{n}") for n in range(7)]).status == 200
    seen: list[str] = []
    query: dict[str, str] = {"limit": "3"}
    while True:
        page = client.get(**query)
        seen += [one["id"] for one in page["statements"]]
        if not page["more"]:
            break
        query = dict(part.split("=") for part in page["more"].partition("?")[2].split("&"))
        query = {name: unquote_plus(value) for name, value in query.items()}
    assert sorted(seen) == sorted(names)
    assert len(seen) == 7


@pytest.mark.mission("D5")
def test_a_merge_that_fails_is_503_and_the_same_request_may_be_sent_again(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable("the warehouse is away")

    with monkeypatch.context() as patched:
        patched.setattr(client.house, "merge", away)
        assert client.put(statement()) == 503
    assert client.put(statement()) == 204
    assert client.ids() == [uuid("s1")]

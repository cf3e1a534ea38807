"""Which statements are valid: what the specification forbids is refused, with the place where it is."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from examples.learning.xapi import Invalid, check
from tests.learning.samples import JOHN, VERBS, statement, uuid

APPLICATION = {"account": {"homePage": "https://oauth.example.com", "name": "app"}}

VALID = {
    "the simplest": statement(),
    "by hash": statement(actor={"mbox_sha1sum": "a" * 40}),
    "by account": statement(
        actor={"objectType": "Agent", "account": {"homePage": "https://lms.example.com", "name": "7"}}
    ),
    "by openid": statement(actor={"openid": "https://id.example.com/7"}),
    "an anonymous group": statement(actor={"objectType": "Group", "member": [JOHN]}),
    "an identified group": statement(actor={"objectType": "Group", "mbox": "mailto:team@example.com"}),
    "an agent as the object": statement(object={"objectType": "Agent", **JOHN}),
    "a reference": statement(object={"objectType": "StatementRef", "id": uuid("other")}),
    "null in an extension": statement(result={"extensions": {"https://example.com/x": None}}),
    "a text that looks like a NUL": statement(result={"response": "\\u0000 is written so, \\\\u0000 too"}),
    "weeks": statement(result={"duration": "P4W"}),
    "an application and its user as the authority": statement(
        authority={"objectType": "Group", "member": [APPLICATION, JOHN]}
    ),
    "relevant types": statement(
        context={
            "contextAgents": [{"objectType": "contextAgent", "agent": JOHN, "relevantTypes": ["https://example.com/t"]}]
        }
    ),
    "an interaction": statement(
        object={
            "id": "https://example.com/q",
            "definition": {"interactionType": "choice", "choices": [{"id": "a"}, {"id": "b"}]},
        }
    ),
    "an attachment elsewhere": statement(
        attachments=[
            {
                "usageType": "https://example.com/t",
                "display": {"en": "x"},
                "contentType": "text/plain; charset=utf-8",
                "length": 3,
                "sha2": "b" * 64,
                "fileUrl": "https://example.com/f",
            }
        ]
    ),
    "context agents": statement(context={"contextAgents": [{"objectType": "contextAgent", "agent": JOHN}]}),
}

SINCE_2_0_0 = {"relevant types", "context agents"}

REFUSED: dict[str, Any] = {
    "no object": ["a list"],
    "no actor": {name: value for name, value in statement().items() if name != "actor"},
    "an unknown property": statement(mood="good"),
    "a property in another case": statement(Result={}),
    "null": statement(result=None),
    "null inside": statement(result={"success": None}),
    "a text for a number": statement(result={"score": {"raw": "7"}}),
    "a text for a truth": statement(result={"success": "true"}),
    "an id that is not a UUID": statement() | {"id": "test-123"},
    "two identifiers": statement(actor={**JOHN, "openid": "https://id.example.com/7"}),
    "no identifier": statement(actor={"name": "John"}),
    "a mailbox without mailto": statement(actor={"mbox": "john@example.com"}),
    "an anonymous group without members": statement(actor={"objectType": "Group", "name": "us"}),
    "a group in a group": statement(
        actor={"objectType": "Group", "member": [{"objectType": "Group", "member": [JOHN]}]}
    ),
    "an actor that is an activity": statement(actor={"objectType": "Activity", **JOHN}),
    "a verb that is not an IRI": statement(verb={"id": "completed"}),
    "a verb as text": statement(verb="completed"),
    "a language that is none": statement(verb={"id": f"{VERBS}x", "display": {"not a language": "x"}}),
    "an unknown type of object": statement(object={"objectType": "Thing", "id": "https://example.com/x"}),
    "a scaled score beyond 1": statement(result={"score": {"scaled": 1.01}}),
    "raw beyond max": statement(result={"score": {"raw": 11, "min": 0, "max": 10}}),
    "min beyond max": statement(result={"score": {"min": 10, "max": 1}}),
    "a duration that is none": statement(result={"duration": "an hour"}),
    "an empty duration": statement(result={"duration": "PT"}),
    "a day that is none": statement(timestamp="2026-02-30T12:00:00Z"),
    "a zone of minus nothing": statement(timestamp="2026-02-28T12:00:00-00:00"),
    "a date without a time": statement(timestamp="2026-02-28"),
    "before the year 1": statement(timestamp="0001-01-01T00:00:00+23:59"),
    "a version to come": statement(version="3.0.0"),
    "a platform of an agent": statement(object={"objectType": "Agent", **JOHN}, context={"platform": "x"}),
    "a team that is an agent": statement(context={"team": JOHN}),
    "voiding without a reference": statement(verb={"id": f"{VERBS}voided"}),
    "a substatement with an id": statement(object={"objectType": "SubStatement", **statement()}),
    "a substatement in a substatement": statement(
        object={
            "objectType": "SubStatement",
            "actor": JOHN,
            "verb": {"id": f"{VERBS}x"},
            "object": {
                "objectType": "SubStatement",
                "actor": JOHN,
                "verb": {"id": f"{VERBS}x"},
                "object": {"id": "https://example.com/x"},
            },
        }
    ),
    "components without a type": statement(
        object={"id": "https://example.com/q", "definition": {"choices": [{"id": "a"}]}}
    ),
    "components of one id": statement(
        object={
            "id": "https://example.com/q",
            "definition": {"interactionType": "choice", "choices": [{"id": "a"}, {"id": "a"}]},
        }
    ),
    "weeks and days": statement(result={"duration": "P4W1D"}),
    "weeks and hours": statement(result={"duration": "P4WT1H"}),
    "no relevant type": statement(
        context={"contextAgents": [{"objectType": "contextAgent", "agent": JOHN, "relevantTypes": []}]}
    ),
    "an identified group as the authority": statement(
        authority={"objectType": "Group", "mbox": "mailto:us@example.com", "member": [APPLICATION, JOHN]}
    ),
    "an authority of two people": statement(authority={"objectType": "Group", "member": [JOHN, JOHN]}),
    "an authority of three": statement(authority={"objectType": "Group", "member": [JOHN, JOHN, JOHN]}),
    "an extension that is not an IRI": statement(context={"extensions": {"x": 1}}),
    "a NUL": statement(result={"response": "a\0b"}),
    "a NUL behind a backslash": statement(result={"response": "a\\\0b"}),
}


@pytest.mark.parametrize("case", VALID)
def test_valid_statements_pass(case: str) -> None:
    check(VALID[case])
    if case not in SINCE_2_0_0:
        check(VALID[case], "1.0.3")


@pytest.mark.parametrize("version", ["1.0.3", "2.0.0"])
@pytest.mark.parametrize("case", REFUSED)
def test_invalid_statements_are_refused(case: str, version: str) -> None:
    with pytest.raises(Invalid):
        check(REFUSED[case], version)


def test_the_message_says_where() -> None:
    with pytest.raises(Invalid, match=r"\$\.actor\.mbox"):
        check(statement(actor={"mbox": 7}))
    with pytest.raises(Invalid, match=r"\$\.result\.score\.raw"):
        check(statement(result={"score": {"raw": "7"}}))


def test_what_came_with_2_0_0_is_no_part_of_1_0_3() -> None:
    for case in SINCE_2_0_0:
        with pytest.raises(Invalid, match=r"2\.0\.0"):
            check(VALID[case], "1.0.3")


FIRST = """
import sys, threading
sys.setswitchinterval(1e-6)
from examples.learning.xapi import check
from tests.learning.samples import statement
together = threading.Barrier(8)
def go():
    together.wait()
    check(statement(context={"team": {"objectType": "Group", "mbox": "mailto:team@example.com"}}))
threads = [threading.Thread(target=go) for _ in range(8)]
for one in threads: one.start()
for one in threads: one.join()
"""


def test_the_first_statements_may_come_concurrently() -> None:
    """The shapes are compiled beforehand: if two threads use one first concurrently, msgspec crashes the process."""
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", FIRST], capture_output=True, text=True, check=False, timeout=200)
        assert done.returncode == 0, (done.returncode, done.stderr)

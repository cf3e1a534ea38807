"""The acceptance page: every requirement has a test that exists, or says why it cannot be tried."""

from __future__ import annotations

import pytest

from docs.make_acceptance_page import PAGE, ROOT, Requirement, documents, functions_in, page

EVERY = [one for document in documents() for one in document.requirements]


def test_the_page_is_what_its_generator_writes() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `python docs/make_acceptance_page.py`"


def test_all_five_documents_are_listed_line_by_line() -> None:
    assert len(documents()) == 5
    assert all(len(document.requirements) > 40 for document in documents())
    assert len({(one.section, one.asked) for one in EVERY}) == len(EVERY), "a requirement is listed once"


@pytest.mark.parametrize("requirement", EVERY, ids=lambda one: f"{one.section} {one.asked}")
def test_a_requirement_has_tests_that_exist_or_a_reason(requirement: Requirement) -> None:
    assert bool(requirement.tests) is not bool(requirement.reason)
    for test in requirement.tests:
        path, _, name = test.partition("::")
        assert (ROOT / path).is_file()
        assert name in functions_in(path)

"""Actions: what a preview shows is what changes, by compare-and-set, audited, and within what is visible."""

from __future__ import annotations

import pytest

from onceward import ConfigurationError, RecordState
from onceward.administration import Action, ListingFilter, Visible
from onceward.administration.actions import CHANGED
from onceward.administration.bulk import decode_preview
from tests.administration.shop import admin_of, fail, fill, park
from tests.clients import SyncClient

RETRY = Action(verb="retry")
FORGET = Action(verb="forget")
FAILED = ListingFilter(states=(RecordState.FAILED,))


def test_a_bulk_action_changes_exactly_what_was_shown_and_not_yet_changed(client: SyncClient) -> None:
    for number in range(5):
        fail(client, f"order:{number}", ValueError("no card"))
    admin = admin_of(client, who="anna")
    preview = admin.preview(RETRY, wanted=ListingFilter(prefix="order:"))
    assert (len(preview.targets), preview.refused, preview.more) == (5, [], False)
    client.forget("order:2")  # another operator was faster
    fail(client, "order:3", ValueError("no card"))  # and so was a delivery
    fail(client, "order:new", ValueError("no card"))  # after the preview
    progress: list[tuple[int, int]] = []
    applied = admin.apply(
        decode_preview(preview.encode()), why="the card was unblocked", on_progress=lambda *one: progress.append(one)
    )
    assert {one.key for one in applied.done} == {"order:0", "order:1", "order:4"}
    assert applied.reasons == {CHANGED: 2}
    assert progress == [(5, 5)]
    entries = admin.audit()
    assert {(one.verb, one.who, one.why, one.detail) for one in entries} == {
        ("retry", "anna", "the card was unblocked", "one of 5")
    }
    assert {one.key for one in entries} == {"order:0", "order:1", "order:4"}
    assert admin.apply(preview, why="again").reasons == {CHANGED: 5}, "the tokens were raised"
    assert client.audit("order:new") == [], "it was not touched"


def test_a_preview_counts_what_it_leaves_alone_and_why(client: SyncClient) -> None:
    fill(client)
    with client.claim("running"):
        preview = admin_of(client).preview(FORGET, wanted=ListingFilter(tenants=("",)))
        forced = admin_of(client).preview(Action(verb="forget", force=True), wanted=ListingFilter(tenants=("",)))
    assert len(preview.targets) == 7
    assert preview.reasons == {
        "its lease has not expired, so its owner may be alive → wait, or if that process is gone, force it": 1
    }
    assert len(forced.targets) == 8
    parked = admin_of(client).preview(RETRY, wanted=ListingFilter())
    assert len(parked.targets) == 9
    assert sum(parked.reasons.values()) == 13
    limited = admin_of(client).preview(RETRY, wanted=FAILED, limit=4)
    assert (len(limited.targets), limited.more) == (4, True)


def test_a_failure_group_is_retried_as_a_whole_and_no_other(client: SyncClient) -> None:
    fill(client)
    admin = admin_of(client)
    groups = {one.error_type: one for one in admin.failures(FAILED).groups}
    assert {name: one.count for name, one in groups.items()} == {"ValueError": 6, "KeyError": 3}
    assert {one.frame for one in groups.values()} == {"tests.administration.shop.fail.work"}
    assert len(admin.failure_group(groups["KeyError"].id)) == 3
    applied = admin.apply(admin.preview(RETRY, group=groups["KeyError"].id), why="fixed")
    assert {one.key for one in applied.done} == {"failed:0"}
    assert len(applied.done) == 3


def test_an_operator_cannot_change_what_is_not_visible_even_with_a_stolen_preview(client: SyncClient) -> None:
    fill(client)
    stolen = admin_of(client).preview(FORGET, wanted=FAILED)
    limited = admin_of(client).limited(Visible(tenants=("acme",)), who="eve")
    applied = limited.apply(stolen)
    assert {one.scope for one in applied.done} == {"default/shared@acme"}
    assert applied.reasons == {"it is outside the scopes and tenants that you may change": 6}
    foreign = next(row for row in admin_of(client).keys(FAILED).rows if row.tenant == "globex")
    assert limited.preview(FORGET, ids=[foreign.id]).targets == []
    assert limited.preview(FORGET, wanted=ListingFilter(tenants=("globex",))).targets == []


def test_two_operators_resolve_one_record_and_the_second_is_told(client: SyncClient) -> None:
    park(client, "wire:7")
    [evidence] = admin_of(client).parked().rows
    assert {one.action for one in evidence.actions if one.allowed} >= {"resolve-applied", "resolve-not-applied"}
    yes = Action(verb="resolve", finding="applied", result={"paid": 7})
    no = Action(verb="resolve", finding="abandon")
    admin = admin_of(client)
    first, second = (admin.preview(one, ids=[evidence.row.id]) for one in (yes, no))
    assert len(admin.apply(first, why="the bank says so").done) == 1
    assert admin.apply(second, why="I think not").reasons == {CHANGED: 1}
    detail = admin.key(evidence.row.id, values=True)
    assert detail.row.state is RecordState.COMPLETED
    assert detail.result.value == {"paid": 7}


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (Action(verb="resolve"), "resolve needs finding"),
        (Action(verb="retry", finding="applied"), "retry takes no finding"),
        (Action(verb="resolve", finding="applied", undo=True), "undo requires"),
        (Action(verb="resolve", finding="abandon", result=1), "a result requires"),
        (Action(verb="resolve", finding="applied", window="soon"), "soon"),
    ],
)
def test_an_action_whose_options_do_not_fit_together_is_refused(
    client: SyncClient, action: Action, message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        admin_of(client).preview(action, wanted=FAILED)


@pytest.mark.parametrize("text", ["", "x", "eJw=", "AAAA" * 100_000, "eJyrVkosLcmIz8nPS1eyUsjLL0stUlCqBQA9Jgdh"])
def test_a_text_that_is_not_a_preview_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="not a preview"):
        decode_preview(text)

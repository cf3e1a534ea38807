"""Tests of the shop with a fake clock, as pytest functions."""

import pytest

from onceward.django import once
from onceward.testing import FakeClock

from .models import Order
from .services import place_order


@pytest.mark.django_db
def test_a_window_ends_when_the_test_says_so(onceward_clock: FakeClock) -> None:
    first = place_order("A1")
    onceward_clock.advance("23h")
    assert place_order("A1") == first
    onceward_clock.advance("2h")
    assert place_order("A1") != first
    assert Order.objects.count() == 2


@pytest.mark.django_db
def test_the_next_test_finds_no_record() -> None:
    assert place_order.read("A1") is None


def test_without_the_mark_nothing_is_written() -> None:
    with pytest.raises(RuntimeError, match="Database access not allowed"):
        once.run("without a database", str)

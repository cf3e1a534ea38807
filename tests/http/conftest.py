"""Sync and async sites, closed at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.sites import SITES, Site

MakeSite = Callable[..., Site]


@pytest.fixture(params=SITES)
def make_site(request: pytest.FixtureRequest) -> Iterator[MakeSite]:
    made: list[Site] = []

    def make(*args: Any, **choices: Any) -> Site:
        made.append(SITES[request.param](*args, **choices))
        return made[-1]

    yield make
    for site in made:
        site.close()


@pytest.fixture
def site(make_site: MakeSite) -> Site:
    return make_site()

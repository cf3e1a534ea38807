"""The page that shows what is true now, in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fleet.served_fleet import APPLIED, STALE, beat, served
from tests.servers.browser import opened

HOSTILE = '<img src=x onerror="alert(1)"><script>alert(2)</script>'


@pytest.mark.mission("E2", "E3")
def test_the_page_follows_the_fleet_and_shows_everything_as_text(tmp_path: Path) -> None:
    with served(f"sqlite:///{tmp_path / 'fleet.db'}?synchronous=NORMAL") as fleet, opened() as page:
        assert fleet.push(beat(5, version=HOSTILE, status="ok"), "m5") == APPLIED
        assert fleet.push(beat(5, service=HOSTILE, env=HOSTILE, status=HOSTILE), "m1") == APPLIED
        page.goto(str(fleet.http.base_url))
        billing = page.locator('tr[data-id="prod__billing"]')
        billing.get_by_text("ok", exact=True).wait_for()
        assert billing.locator("td").all_inner_texts()[:5] == ["billing", "prod", "", "ok", HOSTILE]
        assert page.locator("#services tr").count() == 3
        assert page.locator("img, body script").count() == 0, "nothing of an event is HTML"

        assert fleet.push(beat(4, status="down"), "m4") == STALE
        assert fleet.push(beat(6, status="degraded"), "m6") == APPLIED
        billing.get_by_text("degraded", exact=True).wait_for()
        fleet.health()  # also writes the counts, which wait for a minute otherwise
        page.get_by_text("3 applied, 0 replayed, 1 stale, 0 rejected").wait_for()
        for number in range(30):
            fleet.push(beat(1, service="late", producedAt=f"2025-03-01T07:00:{number:02}Z"), f"n{number}")
            fleet.push(beat(1, service="late", producedAt=f"2025-03-01T06:00:{number:02}Z"), f"o{number}")
        fleet.health()
        page.get_by_role("alert").get_by_text("stale_spike").wait_for()


def test_the_page_takes_nothing_from_elsewhere(tmp_path: Path) -> None:
    with served(f"sqlite:///{tmp_path / 'fleet.db'}") as fleet:
        for path in ("/", "/page.js", "/page.css", "/health"):
            answer = fleet.http.get(path)
            assert answer.status_code == 200
            assert answer.headers["content-security-policy"].startswith("default-src 'self'")
            assert answer.headers["x-content-type-options"] == "nosniff"
        assert "innerHTML" not in fleet.http.get("/page.js").text
        assert fleet.http.get("/elsewhere").status_code == 404
        assert fleet.http.post("/health").status_code == 405
        assert fleet.http.get("/pubsub/push").status_code == 405

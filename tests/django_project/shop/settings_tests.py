"""Settings: what `manage.py check` reports, what follows `override_settings`, and what messages tell Django users."""

import json
import logging
from datetime import UTC, datetime, timedelta
from unittest.mock import patch

from asgiref.sync import async_to_sync
from django.conf import settings
from django.contrib.auth.models import User
from django.core.checks import run_checks
from django.db import connection, transaction
from django.test import SimpleTestCase, TestCase, modify_settings, override_settings

from onceward import ConfigurationError
from onceward.django import once
from onceward.django.models import Record
from onceward.http import committed_response
from onceward.protocol.hints import migrate_hint, resolve_hint
from onceward.sagas import Step, StepContext

from .services import place_order

OURS = "onceward.django.IdempotencyMiddleware"
AUTHENTICATION = "django.contrib.auth.middleware.AuthenticationMiddleware"
SESSION = "django.contrib.sessions.middleware.SessionMiddleware"
FRAMES = "django.middleware.clickjacking.XFrameOptionsMiddleware"
MIDNIGHT = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def reported() -> dict[str, str]:
    """Return the hints of Onceward's messages in `manage.py check`, by their ids."""
    return {one.id: one.hint for one in run_checks() if str(one.id).startswith("onceward.")}


class Authentication:
    """A middleware of the project that is not a subclass of Django's."""


class Checks(SimpleTestCase):
    """`manage.py check` reports problems, and nothing else."""

    def test_a_correct_project_has_no_findings(self) -> None:
        self.assertEqual(reported(), {})

    def test_the_order_of_the_middleware(self) -> None:
        for listed, wanted in (
            ([SESSION, AUTHENTICATION, OURS], set()),
            ([SESSION, AUTHENTICATION, FRAMES, OURS], set()),
            ([SESSION, AUTHENTICATION, OURS, f"{__name__}.Authentication"], set()),
            ([SESSION, OURS, AUTHENTICATION], {"onceward.E002"}),
            ([SESSION, AUTHENTICATION, OURS, FRAMES], {"onceward.W002"}),
            ([SESSION, AUTHENTICATION], {"onceward.E003"}),
        ):
            with self.subTest(listed=listed), override_settings(MIDDLEWARE=listed):
                found = reported()
                self.assertEqual(set(found), wanted)
                self.assertTrue(all(OURS in hint for hint in found.values()))

    def test_a_principal_of_the_project_needs_no_authentication_middleware(self) -> None:
        setting = {"APP": "shop", "HTTP": {"principal": f"{__name__}.reported"}}
        with override_settings(MIDDLEWARE=[SESSION, OURS, AUTHENTICATION], ONCEWARD=setting):
            self.assertEqual(reported(), {})

    def test_an_invalid_or_incomplete_setting_is_reported(self) -> None:
        with override_settings(ONCEWARD={}):
            self.assertEqual(set(reported()), {"onceward.W001"})
        for wrong in ({"DATABASE": "missing"}, {"database": "default"}):  # in settings.py: no signal is sent
            with self.subTest(wrong=wrong), patch.dict(settings.ONCEWARD, wrong):
                self.assertIn('"APP": "shop"', reported()["onceward.E001"])

    def test_transactions_of_sqlite_lock_when_they_begin(self) -> None:
        if connection.vendor != "sqlite":
            self.skipTest("SQLite only")
        for mode, wanted in ((None, {"onceward.W003"}), ("DEFERRED", {"onceward.W003"}), ("immediate", set())):
            options = {**connection.settings_dict["OPTIONS"], "transaction_mode": mode}
            with self.subTest(mode=mode), patch.dict(connection.settings_dict, {"OPTIONS": options}):
                found = reported()
                self.assertEqual(set(found), wanted)
                self.assertTrue(all("IMMEDIATE" in hint for hint in found.values()))


class Messages(TestCase):
    """Messages suggest what a Django project uses."""

    def test_a_header_that_is_added_too_late_is_reported_with_the_middleware_to_move(self) -> None:
        self.client.force_login(User.objects.create_user("ann"))
        committed_response.warned_names.clear()
        with modify_settings(MIDDLEWARE={"append": FRAMES}), self.assertLogs("onceward.http", logging.WARNING) as logs:
            body = json.dumps({"reference": "A1"})
            self.client.post("/orders", body, content_type="application/json", headers={"Idempotency-Key": "k1"})
        self.assertIn("x-frame-options", logs.output[0])
        self.assertIn(f"before {OURS} in MIDDLEWARE", logs.output[0])
        self.assertNotIn("tx.respond", logs.output[0])

    def test_an_open_transaction_raises_and_names_once_atomic(self) -> None:
        with (
            override_settings(ONCEWARD={"OPEN_TRANSACTION": "refuse"}),
            self.assertRaisesRegex(ConfigurationError, r"once\.atomic\(\)"),
            transaction.atomic(),
        ):
            place_order("A1")

    def test_hints_name_the_commands_of_manage_py(self) -> None:
        self.assertIn("`python manage.py onceward resolve", resolve_hint("order:A1"))
        self.assertEqual(migrate_hint("sqlite:///shop.db"), "run `python manage.py migrate`")


# Declared when the module is imported, as in a project: before a test overrides the setting.
runs: list[str] = []


@once.schedule("0 0 * * *", name="settings night")
def night() -> None:
    runs.append("night")


def first(context: StepContext) -> None:
    runs.append("saga")


saga = once.saga("settings saga", Step("first", first, kind="retriable"), key="saga:{order}")
state = once.state("settings state", int)
tenant = once.using(tenant="north")


@tenant(key="tenant:{order}", name="of_tenant")
def of_tenant(order: int) -> None:
    runs.append("tenant")


@once(key="async:{order}", name="in_loop")
async def in_loop(order: int) -> None:
    runs.append("async")


@once.operation("close")
def close(day: str) -> None:
    runs.append("close")


class Overridden(TestCase):
    """`override_settings(ONCEWARD=…)` reaches everything that was declared before."""

    def setUp(self) -> None:
        runs.clear()

    def deliver(self) -> None:
        night.tick(MIDNIGHT).unwrap()
        saga(order=7)
        of_tenant(7)
        close("2026-01-31")
        async_to_sync(in_loop)(7)

    def test_schedules_sagas_and_tenants(self) -> None:
        self.deliver()
        with override_settings(ONCEWARD={"APP": "other shop", "MAX_RESULT_BYTES": 4321}):
            self.deliver()
            self.assertEqual(saga.policy.max_result_bytes, 4321)
            self.assertEqual(night.schedule.policy.max_result_bytes, 4321)
            self.assertEqual({one.scope.app for one in once.sagas.values()}, {"other shop"})
        self.deliver()
        self.assertEqual(sorted(runs), ["async"] * 2 + ["close"] * 2 + ["night"] * 2 + ["saga"] * 2 + ["tenant"] * 2)
        self.assertEqual({one.scope.partition("/")[0] for one in Record.objects.all()}, {"shop", "other shop"})
        self.assertNotEqual(saga.policy.max_result_bytes, 4321)

    def test_an_override_does_not_count_as_a_deployment(self) -> None:
        close("2026-01-31")
        with override_settings(ONCEWARD={"APP": "shop", "LEASE": "5m"}), self.assertNoLogs("onceward", "WARNING"):
            close("2026-01-31")
            close("2026-02-01")

    def test_latest_states(self) -> None:
        state.apply("truck", MIDNIGHT, 20)
        with override_settings(ONCEWARD={"APP": "other shop"}):
            self.assertIsNone(state.get("truck"))
            state.apply("truck", MIDNIGHT - timedelta(days=1), 10)
            self.assertEqual(state.get("truck"), 10)
            self.assertIs(state.client, once)
        self.assertEqual(state.get("truck"), 20)

    def test_completing_the_claim_of_a_request_by_hand(self) -> None:
        self.client.force_login(User.objects.create_user("ann"))
        with self.assertRaisesRegex(ConfigurationError, r"@idempotent\(transactional=True\)"):
            self.client.post("/completes", headers={"Idempotency-Key": "k1"})

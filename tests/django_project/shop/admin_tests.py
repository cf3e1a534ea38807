"""The admin pages and the management command, in tests of the user's app."""

import io
from contextlib import redirect_stdout

from django.contrib.auth.models import Permission, User
from django.core.management import CommandError, call_command
from django.test import TestCase

from onceward.django import once

from .services import place_order


@once(key="charge:{order}", after_crash="park", name="charge")
def charge(order: str) -> None:
    raise TimeoutError("no answer from the bank")


class AdminPages(TestCase):
    """Records are read-only without a permission, and changed by the same actions as on the command line."""

    def setUp(self) -> None:
        self.user = User.objects.create_user("ann", is_staff=True)
        self.allow("view_record")
        self.client.force_login(self.user)
        with self.assertRaises(TimeoutError):
            charge("7")
        self.page = f"/admin/onceward/record/{charge.key('7').id.hex()}/"

    def allow(self, permission: str) -> None:
        self.user.user_permissions.add(Permission.objects.get(codename=permission))

    def test_records_are_listed_and_explained(self) -> None:
        place_order("A1")
        self.assertContains(self.client.get("/admin/onceward/record/"), "order:A1")
        self.assertNotContains(self.client.get("/admin/onceward/record/?state=PARKED"), "order:A1")
        page = self.client.get(self.page)
        self.assertContains(page, "TimeoutError")
        self.assertNotContains(page, "resolve-applied")
        self.assertEqual(self.client.get("/admin/onceward/record/1234/").status_code, 404)

    def test_an_action_needs_its_permission(self) -> None:
        token = {"token": charge.read("7").token, "why": "the bank says no"}
        self.assertEqual(self.client.post(f"{self.page}resolve-not-applied/", token).status_code, 403)
        self.allow("resolve_record")
        self.assertContains(self.client.get(self.page), "resolve-not-applied")
        self.assertEqual(self.client.get(f"{self.page}resolve-not-applied/").status_code, 405)
        self.assertEqual(self.client.post(f"{self.page}forget/", token).status_code, 403)
        self.assertEqual(self.client.post(f"{self.page}resolve-not-applied/", token).status_code, 302)
        self.assertEqual(charge.read("7").state, "FAILED")
        self.assertContains(self.client.get(self.page), "ann in Django")

    def test_a_record_that_has_changed_is_left_alone(self) -> None:
        self.allow("forget_record")
        self.client.post(f"{self.page}forget/", {"token": "1"})
        self.assertEqual(charge.read("7").state, "PARKED")
        self.assertEqual(self.client.post("/admin/onceward/record/zz/forget/", {"token": "1"}).status_code, 404)

    def test_others_see_nothing(self) -> None:
        self.client.force_login(User.objects.create_user("ben", is_staff=True))
        self.assertEqual(self.client.get("/admin/onceward/record/").status_code, 403)
        self.assertEqual(self.client.get(self.page).status_code, 403)

    def test_the_management_command_uses_the_database_of_the_test(self) -> None:
        printed = io.StringIO()
        with redirect_stdout(printed):
            call_command("onceward", "ls")
        self.assertIn("charge:7", printed.getvalue())
        with self.assertRaisesRegex(CommandError, "exit code 1"), redirect_stdout(io.StringIO()):
            call_command("onceward", "recover", "--once")  # one record is parked
        self.assertEqual(place_order("A1"), place_order("A1"))  # the client of the tests is not closed
        with self.assertRaises(CommandError) as caught, redirect_stdout(io.StringIO()):
            call_command("onceward", "explain", "no such key")
        self.assertNotEqual(caught.exception.returncode, 0)

"""The tests of the shop's views, with Django's test clients."""

import json

from django.contrib.auth.models import User
from django.core.exceptions import ImproperlyConfigured
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db.transaction import TransactionManagementError
from django.test import TestCase, TransactionTestCase, modify_settings, override_settings
from django.test.client import encode_multipart

from onceward import ConfigurationError
from onceward.http.quota import Quota

from .models import Order

ORDER = json.dumps({"reference": "A1", "cents": 500})


class Requests:
    """Every endpoint runs once per key, and sends the same response again."""

    def setUp(self) -> None:
        self.user = User.objects.create_user("ann")
        self.client.force_login(self.user)

    def post(self, path: str, key: str | None = "k1", body: str = ORDER):
        headers = {} if key is None else {"Idempotency-Key": key}
        return self.client.post(path, body, content_type="application/json", headers=headers)

    def test_a_content_length_of_any_number_of_digits_is_too_large(self) -> None:
        response = self.client.post(
            "/orders", ORDER, "application/json", headers={"Idempotency-Key": "k1"}, CONTENT_LENGTH="9" * 5_000
        )
        self.assertEqual(response.status_code, 413)

    def test_each_endpoint_runs_once(self) -> None:
        for path in ("/orders", "/async", "/drf/orders", "/ninja/orders"):
            with self.subTest(path=path):
                before = Order.objects.count()
                first, second = self.post(path, f"key of {path}".replace(" ", "-")), None
                second = self.post(path, f"key of {path}".replace(" ", "-"))
                self.assertIn(first.status_code, (200, 201))
                self.assertEqual((first.status_code, first.content), (second.status_code, second.content))
                self.assertNotIn("Idempotency-Replayed", first)
                self.assertEqual(second["Idempotency-Replayed"], "true")
                self.assertEqual(second["Content-Type"], first["Content-Type"])
                self.assertEqual(Order.objects.count(), before + 1)

    def test_keys_belong_to_users_and_requests(self) -> None:
        self.post("/orders")
        self.assertEqual(self.post("/orders", body=json.dumps({"reference": "B1"})).status_code, 422)
        self.assertEqual(self.post("/orders", key=None).status_code, 400)
        self.client.force_login(User.objects.create_user("ben"))
        self.assertEqual(self.post("/orders").status_code, 201)
        self.assertEqual(Order.objects.count(), 2)
        self.client.logout()
        self.assertEqual(self.post("/orders").status_code, 401)

    def test_an_optional_key(self) -> None:
        self.assertEqual(self.post("/separate", key=None).status_code, 201)
        self.assertEqual(self.post("/separate").status_code, 201)
        self.assertEqual(self.post("/separate").status_code, 201)
        self.assertEqual(Order.objects.count(), 2)

    def test_a_response_that_frees_the_key_rolls_the_rows_back(self) -> None:
        body = json.dumps({"reference": "A1", "cents": -1})
        self.assertEqual(self.post("/orders", body=body).status_code, 503)
        self.assertEqual(Order.objects.count(), 0)
        self.assertEqual(self.post("/orders", body=body).status_code, 503)

    def test_a_view_that_raises_can_be_retried(self) -> None:
        self.client.raise_request_exception = False
        self.assertEqual(self.post("/orders", body='{"unknown": 1}').status_code, 500)
        self.assertEqual(self.post("/orders", body='{"unknown": 1}').status_code, 500)
        self.assertEqual(Order.objects.count(), 0)

    def test_a_missing_middleware_is_an_error(self) -> None:
        with (
            modify_settings(MIDDLEWARE={"remove": "onceward.django.IdempotencyMiddleware"}),
            self.assertRaisesRegex(ImproperlyConfigured, "after AuthenticationMiddleware"),
        ):
            self.post("/orders")
        self.assertEqual(Order.objects.count(), 0)

    def test_options_for_all_views(self) -> None:
        with override_settings(ONCEWARD={"HTTP": {"bare_keys": False}}):
            self.assertEqual(self.post("/orders", key="bare").status_code, 400)
            self.assertEqual(self.post("/orders", key='"quoted"').status_code, 201)

    def test_reauthorize_may_use_the_database_and_is_never_taken_for_true_if_it_is_async(self) -> None:
        async def later(request) -> bool:
            return False

        def is_known(request) -> bool:
            return User.objects.filter(pk=request.user.pk, email="").exists()

        with override_settings(ONCEWARD={"HTTP": {"bare_keys": True, "reauthorize": is_known}}):
            self.assertEqual([self.post("/orders").status_code for _ in range(2)], [201, 201])
            User.objects.update(email="gone@example.com")
            self.assertEqual(self.post("/orders").status_code, 403)
        with (
            override_settings(ONCEWARD={"HTTP": {"bare_keys": True, "reauthorize": later}}),
            self.assertRaisesRegex(ConfigurationError, "async"),
        ):
            self.post("/orders")

    def test_a_listed_path_is_handled_under_a_script_name_too(self) -> None:
        with override_settings(ONCEWARD={"HTTP": {"required": ["/fails"]}}):
            for prefix in ("", "/app"):
                with self.subTest(prefix=prefix):
                    response = self.client.post("/fails", ORDER, content_type="application/json", SCRIPT_NAME=prefix)
                    self.assertEqual(response.status_code, 400)

    def test_a_caller_who_lost_the_right_gets_no_stored_response(self) -> None:
        allowed = [True, False]
        with override_settings(ONCEWARD={"HTTP": {"bare_keys": True, "reauthorize": lambda _: allowed.pop(0)}}):
            first, again, refused = (self.post("/orders") for _ in range(3))
        self.assertEqual([first.status_code, again.status_code, refused.status_code], [201, 201, 403])
        self.assertEqual(refused.json()["code"], "no_longer_allowed")
        self.assertNotIn(b"A1", refused.content)

    def test_a_quota_of_keys(self) -> None:
        with override_settings(ONCEWARD={"HTTP": {"bare_keys": True, "quota": Quota(keys=1, bytes=10_000)}}):
            self.assertEqual([self.post("/orders", key).status_code for key in ("k1", "k2", "k1")], [201, 429, 201])

    @override_settings(ALLOWED_HOSTS=["*"])
    def test_a_key_belongs_to_a_host(self) -> None:
        self.assertEqual(self.post("/orders").status_code, 201)
        headers = {"Idempotency-Key": "k1", "Host": "other.example"}
        other = self.client.post("/orders", ORDER, content_type="application/json", headers=headers)
        self.assertEqual((other.status_code, other.json()["differs"]), (422, ["host"]))

    def test_a_success_that_django_rolls_back_is_not_stored(self) -> None:
        for _ in range(2):
            with self.assertRaisesRegex(TransactionManagementError, "marked this transaction for rollback"):
                self.post("/unusual/hidden-error")
        self.assertEqual(Order.objects.count(), 0)

    def test_responses_that_cannot_be_committed_are_refused(self) -> None:
        for path, message in (("/unusual/streaming", "streaming response"), ("/async-class", "the view is async")):
            with self.subTest(path=path), self.assertRaisesRegex(ConfigurationError, message):
                self.post(path, key=path.strip("/").replace("/", "-"))
        self.assertEqual(Order.objects.count(), 0)

    def test_a_repeated_upload_may_have_another_boundary(self) -> None:
        responses = []
        for boundary in ("first", "second"):
            body = encode_multipart(boundary, {"file": SimpleUploadedFile("a.txt", b"text")})
            content_type = f"multipart/form-data; boundary={boundary}"
            headers = {"Idempotency-Key": "k1"}
            responses.append(self.client.post("/unusual/upload", body, content_type=content_type, headers=headers))
        self.assertEqual([one.status_code for one in responses], [201, 201])
        self.assertEqual(responses[0].json(), responses[1].json())
        self.assertEqual(responses[0].json()["files"], 1)


class InTransaction(Requests, TestCase):
    """Django rolls back each test."""

    async def test_the_async_client(self) -> None:
        await self.async_client.aforce_login(self.user)
        for _ in range(2):
            response = await self.async_client.post(
                "/orders", ORDER, content_type="application/json", headers={"Idempotency-Key": "k1"}
            )
            self.assertEqual(response.status_code, 201)
            response = await self.async_client.post(
                "/async", ORDER, content_type="application/json", headers={"Idempotency-Key": "k2"}
            )
            self.assertEqual(response.status_code, 201)
        self.assertEqual(await Order.objects.acount(), 2)


class Committed(Requests, TransactionTestCase):
    """Each request commits."""

    def test_an_error_after_the_commit_is_logged(self) -> None:
        with self.assertLogs("onceward.http", "ERROR") as logs:
            self.assertEqual(self.post("/unusual/callback").status_code, 201)
        self.assertIn("the broker is down", logs.output[0])
        self.assertEqual(self.post("/unusual/callback")["Idempotency-Replayed"], "true")
        self.assertEqual(Order.objects.count(), 1)

"""An id of Standard Webhooks cannot borrow the start of the body: a dot separates them in the signed text."""

from __future__ import annotations

import time

from onceward.http.webhooks import InboundRequest, standard
from tests.endpoints.test_webhooks import STANDARD_SECRET, by_standard


def test_a_signature_cannot_be_used_for_a_longer_id_and_a_shorter_body() -> None:
    now = int(time.time())
    genuine = by_standard(f"{now}.rest".encode(), id="msg_1", at=now)
    scheme = standard(STANDARD_SECRET)
    assert scheme.rejection_reason(genuine, now) is None
    forged = InboundRequest("POST", {**genuine.headers(), "webhook-id": f"msg_1.{now}"}, b"rest")
    assert scheme.rejection_reason(forged, now) == "missing_signature"

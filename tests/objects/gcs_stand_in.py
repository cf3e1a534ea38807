"""A fake Google Cloud Storage that answers as its documentation says, and shows which requests are made.

No emulator supports its preconditions, so the behaviour of Google's own server is not tested here.
"""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from tests.servers.stand_in import StandIn

CONDITION = "x-goog-if-generation-match"
SOURCE = "x-goog-copy-source"
PAGE = 2
"""Names per answer to a listing. Google answers with up to 1,000, and the client asks for the next page alike."""


class Storage(StandIn):
    """One bucket, in memory."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.parts: dict[str, bytes] = {}
        self.listed: list[dict[str, str]] = []
        """The query of every listing."""

        self.conditions: list[tuple[str, str | None]] = []
        """Of every request that gives an object its name: how, and the condition that it carried."""

        storage = self

        class Handler(_Handler):
            def __init__(self, *args: Any) -> None:
                self.storage = storage
                super().__init__(*args)

        super().__init__(Handler)

    @property
    def settings(self) -> dict[str, Any]:
        """Return the arguments for `open_objects`: the address, and that no token is needed."""
        place = {"gcs_base_url": self.url, "disable_oauth": True}
        key = place | {"client_email": "", "private_key": "", "private_key_id": ""}
        return {"service_account_key": json.dumps(key), "client_options": {"allow_http": True}}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    storage: Storage

    def do_PUT(self) -> None:
        body, objects = self._body(), self.storage.objects
        if "partNumber" in self._asked():
            self.storage.parts[self._asked()["partNumber"][0].zfill(5)] = body
            self._send(200)
            return
        source = self.headers.get(SOURCE)
        self.storage.conditions.append(("put" if source is None else "copy", self.headers.get(CONDITION)))
        if self.headers.get(CONDITION) == "0" and self._name() in objects:
            self._send(412)
            return
        objects[self._name()] = body if source is None else objects[unquote(source).partition("/")[2]]
        self._send(200)

    def do_POST(self) -> None:
        self._body()
        if "uploads" in self._asked():
            self.storage.parts.clear()
            self._send(200, _xml("InitiateMultipartUploadResult", "UploadId", "1"))
            return
        parts = self.storage.parts
        self.storage.objects[self._name()] = b"".join(parts[number] for number in sorted(parts))
        self._send(200, _xml("CompleteMultipartUploadResult", "ETag", "1"))

    def do_GET(self) -> None:
        if "list-type" in self._asked():
            self._send(200, self._listing())
            return
        found = self.storage.objects.get(self._name())
        self._send(404 if found is None else 200, found or b"")

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_DELETE(self) -> None:
        found = self.storage.objects.pop(self._name(), None)
        self._send(404 if found is None else 204)

    def _listing(self) -> bytes:
        """Return one page of the names, as the XML API lists them: sorted, and with a token if there are more."""
        asked = {name: values[0] for name, values in self._asked().items()}
        self.storage.listed.append(asked)
        prefix, after = asked.get("prefix", ""), asked.get("continuation-token", "")
        names = sorted(name for name in self.storage.objects if name.startswith(prefix) and name > after)
        page = names[:PAGE]
        items = "".join(
            f"<Contents><Key>{escape(name)}</Key><Size>{len(self.storage.objects[name])}</Size>"
            '<LastModified>2026-03-01T12:00:00.000Z</LastModified><ETag>"1"</ETag></Contents>'
            for name in page
        )
        more = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if len(names) > PAGE else ""
        return f"<ListBucketResult>{items}{more}</ListBucketResult>".encode()

    def _asked(self) -> dict[str, list[str]]:
        return parse_qs(urlsplit(self.path).query, keep_blank_values=True)

    def _name(self) -> str:
        return unquote(urlsplit(self.path).path).removeprefix("/").partition("/")[2]

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _send(self, status: int, answer: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("ETag", '"1"')
        self.send_header("Last-Modified", "Sun, 01 Mar 2026 12:00:00 GMT")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Log nothing: the tests report what went wrong."""


def _xml(name: str, field: str, value: str) -> bytes:
    return f"<{name}><{field}>{value}</{field}></{name}>".encode()

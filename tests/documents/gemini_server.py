"""A server that answers like the public Gemini API: its paths, headers, bodies and errors, as its reference says."""

from __future__ import annotations

import json
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.servers.stand_in import StandIn

KEY = "a key"
Answer = tuple[int, dict[str, Any]]


def text(*parts: str, thoughts: str = "") -> Answer:
    """Return a response with these parts."""
    found = [*([{"text": thoughts, "thought": True}] if thoughts else []), *({"text": part} for part in parts)]
    candidate = {"content": {"parts": found, "role": "model"}, "finishReason": "STOP", "index": 0}
    usage = {"promptTokenCount": 7, "candidatesTokenCount": 5, "totalTokenCount": 12}
    return 200, {
        "candidates": [candidate],
        "usageMetadata": usage,
        "modelVersion": "gemini-2.5-flash",
        "responseId": "x",
    }


def blocked() -> Answer:
    return 200, {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": {"promptTokenCount": 7}}


def error(code: int, status: str, message: str, *details: dict[str, Any]) -> Answer:
    return code, {"error": {"code": code, "message": message, "status": status, "details": list(details)}}


def too_many(delay: str) -> Answer:
    """Return a 429: how long to wait is in its details, not in a header."""
    retry = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}
    quota = {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaValue": "10"}]}
    return error(429, "RESOURCE_EXHAUSTED", "You exceeded your current quota.", quota, retry)


class Gemini(StandIn):
    """Answers with `answers`, one after the other. Requests that the API would refuse are refused."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, dict[str, Any]]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status, answer = server.answer(self.path, self.headers.get("x-goog-api-key"), body)
                sent = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json; charset=UTF-8")
                self.send_header("Content-Length", str(len(sent)))
                self.end_headers()
                self.wfile.write(sent)

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        super().__init__(Handler)

    def answer(self, path: str, key: str | None, body: dict[str, Any]) -> Answer:
        model, _, method = path.removeprefix("/v1beta/models/").partition(":")
        if not path.startswith("/v1beta/models/") or method != "generateContent":
            return error(404, "NOT_FOUND", f"{path} is not found")
        if key != KEY:
            return error(400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key.")
        unknown = sorted(body.keys() - {"contents", "generationConfig", "safetySettings", "systemInstruction", "tools"})
        roles = [one.get("role") for one in body["contents"]]
        if unknown or roles != [("user", "model")[number % 2] for number in range(len(roles))] or len(roles) % 2 == 0:
            return error(400, "INVALID_ARGUMENT", f"Invalid JSON payload received: {unknown} {roles}")
        self.asked.append((model, body))
        return self.answers.pop(0)


Served = Callable[..., Gemini]

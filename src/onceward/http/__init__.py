"""HTTP: idempotency middleware (`asgi`, `wsgi`; `fastapi`, `starlette`, `litestar`, `flask`), webhook and push endpoints, and keys for outgoing requests.

Read `semantics.py` first: it defines the HTTP response for each outcome.
"""

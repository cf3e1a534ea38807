"""HTTP: idempotency middleware (`asgi`, `wsgi`, `fastapi`), webhook and push endpoints, and keys for outgoing requests.

Read `semantics.py` first: it defines the HTTP response for each outcome.
"""

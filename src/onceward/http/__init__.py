"""HTTP: idempotency middleware, webhook and push endpoints, and keys for outgoing requests.

Read `semantics.py` first: it defines the HTTP response for each outcome. `asgi.py` and `wsgi.py` are the middlewares,
`fastapi.py`, `starlette.py`, `litestar.py` and `flask.py` the integrations. `transaction.py` commits rows, record and
response together.
"""

"""`python -m examples.fastapi_payments`: a short demo. `serve --port N` runs the API with uvicorn."""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile

import httpx

from .app import Settings, create_app
from .card_network import StandInNetwork


async def demo(folder: str) -> None:
    """Send a payment three times; the first reply of the card network is lost."""
    network = StandInNetwork()
    network.lose_replies = 1
    settings = Settings(f"sqlite:///{folder}/payments.db", {"a-token": "alice"}, "whsec_demo")
    app = create_app(settings, network.client())
    headers = {"Authorization": "Bearer a-token", "Idempotency-Key": '"order-7"'}
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://shop") as client,
    ):
        for _ in range(3):
            response = await client.post("/payments", json={"cents": 1999}, headers=headers)
            replayed = " (replayed)" if "Idempotency-Replayed" in response.headers else ""
            print(f"{response.status_code} {response.text}{replayed}")
    print(f"charges: {len(network.charges)}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="examples.fastapi_payments", description=__doc__)
    parser.add_argument("command", nargs="?", choices=["demo", "serve"], default="demo")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=int(os.environ.get("PORT", "8000")))
    chosen = parser.parse_args()
    if chosen.command == "demo":
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(demo(folder))
        return
    import uvicorn

    settings = Settings(
        os.environ.get("DATABASE_URL", "sqlite:///payments.db"),
        {os.environ.get("API_TOKEN", "a-token"): "alice"},
        os.environ.get("STRIPE_SECRET", "whsec_demo"),
    )
    uvicorn.run(create_app(settings, StandInNetwork().client()), host=chosen.host, port=chosen.port)


if __name__ == "__main__":
    main()

"""The payment API: `create_app(settings)` returns the FastAPI application."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import httpx
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from msgspec import Struct
from pydantic import BaseModel, Field
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.routing import Route

from onceward import AsyncOnce, current_claim
from onceward.http.fastapi import Idempotency
from onceward.http.webhooks import AsyncWebhook, stripe

from .card_network import CardDeclined, CardNetwork
from .database import Database, Payment
from .stripe_events import StripeEvents


class Settings(Struct):
    """What differs between environments."""

    database_url: str
    tokens: dict[str, str]  # the user of each bearer token
    stripe_secret: str
    lease: str = "15s"


class PaymentIn(BaseModel):
    """A request to pay."""

    cents: Annotated[int, Field(gt=0)]


class PaymentOut(BaseModel):
    """A payment as clients see it."""

    id: int
    cents: int
    charge: str
    status: str


async def current_user(
    request: Request, credentials: Annotated[HTTPAuthorizationCredentials, Depends(HTTPBearer())]
) -> str:
    """Return the user of the token: the principal of the key, and the owner of the payment."""
    settings: Settings = request.app.state.settings
    user = settings.tokens.get(credentials.credentials)
    if user is None:
        raise HTTPException(401, "unknown token", {"WWW-Authenticate": "Bearer"})
    return user


async def get_session(request: Request) -> AsyncIterator[AsyncSession]:
    """Yield a session for one request."""
    database: Database = request.app.state.database
    async with database.sessions() as session:
        yield session


def get_cards(request: Request) -> CardNetwork:
    cards: CardNetwork = request.app.state.cards
    return cards


User = Annotated[str, Depends(current_user)]
Session = Annotated[AsyncSession, Depends(get_session)]
Cards = Annotated[CardNetwork, Depends(get_cards)]


def create_app(settings: Settings, card_client: httpx.AsyncClient) -> FastAPI:
    """Build the application. `card_client` is the HTTP client of the card network."""
    database = Database(settings.database_url)
    once = AsyncOnce(settings.database_url, app="payments", lease=settings.lease)
    idem = Idempotency(once, principal=Depends(current_user), window="7d")

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        await once.migrate()
        async with database.opened(), once, card_client:
            yield

    app = FastAPI(title="Payments", lifespan=lifespan)
    app.state.settings, app.state.database, app.state.cards = settings, database, CardNetwork(card_client)
    app.include_router(payment_routes(idem))
    hook = AsyncWebhook(once, stripe(settings.stripe_secret), StripeEvents(database).apply, name="stripe")
    app.router.routes.append(Route("/hooks/stripe", hook, methods=["POST"]))
    idem.protect(app)
    return app


def payment_routes(idem: Idempotency) -> APIRouter:
    """Return the routes of payments."""
    router = APIRouter(prefix="/payments")

    @router.post("", status_code=201, response_model=PaymentOut, dependencies=[idem.required])
    async def pay(order: PaymentIn, user: User, session: Session, cards: Cards) -> Response:
        """Charge the card, then commit the payment together with this response."""
        try:
            charge = await cards.charge(order.cents, key=current_claim().derived_key("charge"))
        except CardDeclined:
            raise HTTPException(402, "the card was declined") from None
        except httpx.HTTPError as error:  # it is unknown whether the card was charged: the retry has the same key
            raise HTTPException(503, "the card network does not answer", {"Retry-After": "1"}) from error
        async with idem.transaction(session) as tx:
            payment = Payment(user=user, cents=order.cents, charge=charge, status="charged")
            session.add(payment)
            await session.flush()  # sets payment.id
            return tx.respond(payment)

    @router.get("/{number}", response_model=PaymentOut)
    async def show(number: int, user: User, session: Session) -> Payment:
        payment = await session.get(Payment, number)
        if payment is None or payment.user != user:
            raise HTTPException(404)
        return payment

    return router

"""The `with` block of a claim: an attempt that stays in RUNNING until the block ends."""

from __future__ import annotations

from onceward.protocol.outcome import Unknown

from .abandon import abandon, closes_coroutine
from .attempt import NO_RESULT, Attempt
from .conclude import settle_raised, settle_returned, verify_first
from .refusal import refusal_error
from .runner import claim_one


async def enter(attempt: Attempt) -> None:
    """Acquire the key, or raise an error that says why not. A completed key raises AlreadyDone."""
    try:
        refused = await claim_one(attempt)
        if refused is not None:
            raise refusal_error(refused)  # noqa: TRY301 (cleaned up like other errors)
        await enter_owned(attempt)
    except BaseException as error:
        await abandon([attempt], error)
        raise


async def enter_owned(attempt: Attempt) -> None:
    """Begin the block of an attempt that is OWNED or UNPROTECTED: verify first, if the record says so."""
    attempt.__enter__()
    settled = await verify_first(attempt) if attempt.record.ask_first and attempt.engine.rollout.enforces else None
    if settled is not None:
        raise refusal_error(settled)
    attempt.begin()


async def leave(attempt: Attempt, error: BaseException | None) -> None:
    """Settle the claim. Raise if the block raised nothing and the claim could not be completed, or if it was lost."""
    if closes_coroutine(attempt, error):
        attempt.__exit__()
        attempt.abandon()  # the lease expires
        return
    try:
        value = None if attempt.result is NO_RESULT else attempt.result  # of a `complete` that got no answer
        outcome = await (settle_returned(attempt, value) if error is None else settle_raised(attempt, error))
    except BaseException as interrupt:
        await abandon([attempt], interrupt)
        raise
    attempt.__exit__()
    if error is None or isinstance(outcome, Unknown):
        outcome.unwrap()

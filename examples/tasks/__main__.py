"""`python -m examples.tasks`: what was charged so far."""

from __future__ import annotations

from .shop import charges


def main() -> None:
    for order_id, cents in charges():
        print(f"order {order_id}: {cents / 100:.2f}")


if __name__ == "__main__":
    main()

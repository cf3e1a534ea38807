"""`python -m examples.tasks`: list the charges."""

from __future__ import annotations

import argparse

from . import shop


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m examples.tasks", description=shop.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.parse_args()
    charged = shop.charges()
    for order_id, cents in charged:
        print(f"order {order_id}: {cents / 100:.2f}")
    if not charged:
        print(f"no charges yet (in {shop.DATABASE}); each of the with_… modules says how to start a worker")


if __name__ == "__main__":
    main()

"""The migrations of the orders."""

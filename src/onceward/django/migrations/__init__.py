"""The migrations of the app `onceward`."""

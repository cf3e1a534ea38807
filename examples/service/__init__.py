"""What every service of the examples has: an HTTP server, JSON logs, health, readiness, metrics and a graceful stop.

Read `server.py` first.
"""

"""Queue consumers: process each message once, and acknowledge, retry or dead-letter it by its outcome.

Read `consumer.py` first, then `settlement.py` (which outcome leads to what) and `port.py` (what an adapter implements).
"""

from __future__ import annotations

from .batch_work import Batch
from .consumer import Consumer
from .memory import MemoryQueue
from .message import Delivery, Message
from .port import Queue

__all__ = ["Batch", "Consumer", "Delivery", "MemoryQueue", "Message", "Queue"]

"""Consumers of queues: which outcome acknowledges a message, which does not, and the brokers that this works with."""

from __future__ import annotations

from .batch_work import Batch
from .consumer import Consumer
from .memory import MemoryQueue
from .message import Delivery, Message
from .port import Queue

__all__ = ["Batch", "Consumer", "Delivery", "MemoryQueue", "Message", "Queue"]

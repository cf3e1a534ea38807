"""A private Kafka: the one-broker mock of confluent-kafka, in its own process.

`python -m tests.servers.kafka FILE TOPIC …` creates the topics, with four partitions each, writes its address to the
file and keeps running. Its data is in memory: a restart would lose it.
"""

from __future__ import annotations

import importlib.util
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.servers.process import LOOK, STARTING, missing


class KafkaServer:
    """One mock. Other topics are created when they are first used."""

    def __init__(self, *topics: str) -> None:
        if importlib.util.find_spec("confluent_kafka") is None:
            missing("confluent-kafka", "pip install confluent-kafka (part of the dev extra)")
        self._topics = topics
        self._folder = tempfile.TemporaryDirectory(prefix="onceward-kafka-", ignore_cleanup_errors=True)
        self._process: subprocess.Popen[bytes] | None = None
        self.address = ""

    def begin(self) -> KafkaServer:
        address_file = Path(self._folder.name) / "address"
        command = [sys.executable, "-m", "tests.servers.kafka", str(address_file), *self._topics]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE
        )  # the pipe closes when we end, and then the mock ends, too
        deadline = time.monotonic() + STARTING
        while not self.address:
            assert self._process.poll() is None, "the mock of Kafka has ended"
            assert time.monotonic() < deadline, "the mock of Kafka does not start"
            time.sleep(LOOK)
            self.address = address_file.read_text() if address_file.exists() else ""
        return self

    def end(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.communicate()
        self._folder.cleanup()


def main() -> None:
    from confluent_kafka import Producer

    address_file, *topics = sys.argv[1:]
    mock = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "in this process"})
    for topic in topics:
        mock.list_topics(topic, timeout=STARTING)
    brokers = mock.list_topics(timeout=STARTING).brokers
    path = Path(address_file)
    path.with_suffix(".new").write_text(",".join(f"{one.host}:{one.port}" for one in brokers.values()))
    path.with_suffix(".new").rename(path)
    sys.stdin.read()


if __name__ == "__main__":
    main()

"""A private Kafka: the one-broker mock that confluent-kafka brings along, in a process of its own.

`python -m tests.servers.kafka FILE TOPIC …` makes the topics, with four partitions each, writes its address to the file
and stays. What it holds is in memory: a restart would forget it.
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
    """One mock. Topics are made when they are first asked for, too."""

    def __init__(self, *topics: str) -> None:
        if importlib.util.find_spec("confluent_kafka") is None:
            missing("confluent-kafka", "pip install confluent-kafka (part of the dev extra)")
        self._topics = topics
        self._folder = tempfile.TemporaryDirectory(prefix="onceward-kafka-", ignore_cleanup_errors=True)
        self._process: subprocess.Popen[bytes] | None = None
        self.address = ""

    def begin(self) -> KafkaServer:
        told = Path(self._folder.name) / "address"
        command = [sys.executable, "-m", "tests.servers.kafka", str(told), *self._topics]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE)  # which ends when we do, and it with it
        deadline = time.monotonic() + STARTING
        while not self.address:
            assert self._process.poll() is None, "the mock of Kafka has ended"
            assert time.monotonic() < deadline, "the mock of Kafka does not start"
            time.sleep(LOOK)
            self.address = told.read_text() if told.exists() else ""
        return self

    def end(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.communicate()
        self._folder.cleanup()


class Topic:
    """A topic with four partitions, a group that reads it, and a topic for its dead letters."""

    def __init__(self, server: KafkaServer, name: str) -> None:
        from confluent_kafka import Consumer, Producer

        self.name = name
        self.dead = f"{name}-dead"
        self.settings = {"bootstrap.servers": server.address, "group.id": f"of-{name}"}
        self._producer = Producer({"bootstrap.servers": server.address, "linger.ms": 0})
        self._onlooker = Consumer(self.settings)  # asks what the group has committed, and never joins it
        self._put = 0

    def put(self, body: bytes, partition: int = -1) -> None:
        self._producer.produce(self.name, body, partition=partition)
        assert self._producer.flush(STARTING) == 0
        self._put += 1

    def committed(self) -> int:
        """How many messages of all partitions are done."""
        from confluent_kafka import TopicPartition

        partitions = self._onlooker.list_topics(self.name, timeout=STARTING).topics[self.name].partitions
        asked = [TopicPartition(self.name, number) for number in partitions]
        return sum(max(0, one.offset) for one in self._onlooker.committed(asked, timeout=STARTING))

    def left(self) -> int:
        return self._put - self.committed()

    def dead_letters(self) -> list[bytes]:
        from confluent_kafka import OFFSET_BEGINNING, TopicPartition

        partitions = self._onlooker.list_topics(self.dead, timeout=STARTING).topics[self.dead].partitions
        ends = {
            number: self._onlooker.get_watermark_offsets(TopicPartition(self.dead, number), timeout=STARTING)[1]
            for number in partitions
        }
        self._onlooker.assign([TopicPartition(self.dead, number, OFFSET_BEGINNING) for number in ends])
        found: list[bytes] = []
        while len(found) < sum(ends.values()):
            found += [one.value() or b"" for one in self._onlooker.consume(100, timeout=0.5)]
        self._onlooker.unassign()
        return found

    def close(self) -> None:
        self._onlooker.close()


def main() -> None:
    from confluent_kafka import Producer

    told, *topics = sys.argv[1:]
    mock = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "in this process"})
    for topic in topics:
        mock.list_topics(topic, timeout=STARTING)
    brokers = mock.list_topics(timeout=STARTING).brokers
    path = Path(told)
    path.with_suffix(".new").write_text(",".join(f"{one.host}:{one.port}" for one in brokers.values()))
    path.with_suffix(".new").rename(path)
    sys.stdin.read()


if __name__ == "__main__":
    main()

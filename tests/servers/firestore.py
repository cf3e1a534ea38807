"""Google's own Firestore emulator."""

from __future__ import annotations

import functools
import os

from tests.servers.google import QUICK, emulator
from tests.servers.housed import HousedServer

MAIN = "com.google.cloud.datastore.emulator.firestore.CloudFirestore"
EMULATOR = "FIRESTORE_EMULATOR_HOST"


class FirestoreServer(HousedServer):
    """One emulator. Its data is in memory."""

    def __init__(self) -> None:
        jar = emulator("firestore", "cloud-firestore-emulator/cloud-firestore-emulator.jar")
        main = ["-cp", jar, MAIN, "start", "--host=127.0.0.1", "--port={port}"]
        super().__init__("firestore", ["java", "-Xmx512m", *QUICK, *main])


@functools.cache
def shared() -> str:
    """Return the address of one emulator for the whole test process; child processes find it by the same variable."""
    address = os.environ.get(EMULATOR)
    if address is None:
        address = os.environ[EMULATOR] = FirestoreServer().until_exit().address
    return address

"""Google's own emulators, which come with the Google Cloud SDK and need Java.

They cannot be installed from Debian or from a wheel: if one is missing, its tests are skipped, also in CI.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

QUICK = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Duser.language=en")
"""Options for a fast start: an emulator runs for a few thousand calls only, and two cores are shared."""


def emulator(name: str, jar: str) -> str:
    """Return the path of the jar with that pattern in the SDK, or skip the test."""
    gcloud = shutil.which("gcloud")
    if gcloud is not None and shutil.which("java") is not None:
        roots = [Path(gcloud).resolve().parents[1], Path("/usr/lib/google-cloud-sdk")]
        for found in (found for root in roots for found in root.glob(f"platform/{jar}")):
            return str(found)
    package = f"google-cloud-cli-{name}-emulator"
    pytest.skip(f"no {name} emulator: it comes with the Google Cloud SDK ({package}), and needs java")

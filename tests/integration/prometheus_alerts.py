"""Run promtool with series and the alerts that they must raise."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests.servers.process import missing


def promtool(*words: str, folder: Path) -> str:
    """Run promtool and return its output. If it is missing, skip the test; in CI, fail it."""
    found = shutil.which("promtool")
    if found is None:
        missing("promtool", "apt-get install prometheus (its server need not run)")
        return ""
    done = subprocess.run([found, *words], cwd=folder, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def series(values: dict[str, str]) -> list[dict[str, str]]:
    return [{"series": name, "values": value} for name, value in values.items()]


Case = tuple[str, dict[str, str], str, str, list[dict[str, str]]]


def raised(folder: Path, cases: list[Case], *, every: str = "1h") -> None:
    """Let promtool check the cases: interval, series, time of evaluation, alert, and the labels that it is raised with.

    Only labels are compared; other tests check the texts.
    """
    tests: list[Any] = []
    for interval, values, at, alert, labels in cases:
        tests.append(
            {
                "interval": interval,
                "input_series": series(values),
                "promql_expr_test": [
                    {
                        "expr": f'sum without (alertname, severity, rule) (ALERTS{{alertname="{alert}"}})',
                        "eval_time": at,
                        "exp_samples": [{"labels": _labels(one), "value": 1} for one in labels],
                    }
                ],
            }
        )
    # JSON is YAML.
    plan = {"rule_files": ["alerts.yml"], "evaluation_interval": every, "tests": tests}
    (folder / "test.yml").write_text(json.dumps(plan))
    promtool("test", "rules", "test.yml", folder=folder)


def _labels(given: dict[str, str]) -> str:
    inside = ", ".join(f'{name}="{value}"' for name, value in {"alertstate": "firing", **given}.items())
    return f"{{{inside}}}"

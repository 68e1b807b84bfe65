"""The description of the API: it has every route, it is true, and a machine that attacks it finds nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from holdfast.core.wire import ROUTES
from holdfast.server.openapi import describe
from tests.extent import first
from tests.servers.lock_server import LockServer


def test_every_route_is_described():
    paths = describe()["paths"]
    found = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    assert found == {(route.method, route.path) for route in ROUTES}


def test_every_reference_leads_somewhere():
    text = json.dumps(description := describe())
    known = {f"#/components/schemas/{name}" for name in description["components"]["schemas"]}
    told = {part.partition('"')[0] for part in text.split('"$ref": "')[1:]}
    assert told <= known
    assert len(told) > 20


def test_what_is_only_for_tests_is_not_told():
    assert '"now"' not in json.dumps(describe()["paths"])


@pytest.mark.parametrize("examples", first(1, ["4", "20"]))
def test_schemathesis_finds_nothing(tmp_path: Path, examples: str) -> None:
    """Whatever it sends is answered as the description says: statuses, types, bodies, and no 5xx."""
    # It makes access tokens too: nobody is to be asked for one afterwards. Who may what is tested elsewhere.
    flags = "--log-level", "warning", "--insecure-no-authentication"
    with LockServer(f"sqlite:///{tmp_path}/locks.db", tmp_path / "log", *flags) as at:
        attack(at, tmp_path, examples)


SEED = os.environ.get("HOLDFAST_SEED", "1")  # the same attack each time, unless told otherwise
# Beside what it takes for an answer by itself: 410 is said of an instance that nobody knows, 413 of a body of
# more than a MiB, whatever is in it.
CONFIG = """
[checks.positive_data_acceptance]
expected-statuses = ["2xx", "3xx", 401, 403, 404, 409, 410, 413, 429, "5xx"]
[checks.negative_data_rejection]
expected-statuses = [400, 401, 403, 404, 405, 406, 409, 413, 415, 422, 428, 429, "5xx"]
"""


def attack(at: LockServer, folder: Path, examples: str) -> None:
    (folder / "schemathesis.toml").write_text(CONFIG)
    command = [
        *(Path(sys.executable).with_name("st"), "run", f"{at.url}/openapi.json"),
        *("--phases", "examples,coverage,fuzzing", "--max-examples", examples, "--continue-on-failure"),
        *("--seed", SEED),
        *("--exclude-path", "/v1/signals"),  # which never ends
        *("--request-timeout", "30", "--no-color"),
    ]
    hooks = {"SCHEMATHESIS_HOOKS": "schemathesis_hooks", "PYTHONPATH": str(Path(__file__).parent)}
    run = subprocess.run(
        command, cwd=folder, env=os.environ | hooks, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, f"{run.stdout[-6000:]}\n{run.stderr[-2000:]}\n{at.log.read_text()[-2000:]}"
    assert "Unsupported regex" not in run.stdout
    assert "Rate limited" not in run.stdout
    with urllib.request.urlopen(f"{at.url}/readyz") as answer:
        assert json.load(answer)["status"] == "ready"

"""The tests that need no server, on every Python that ``pyproject.toml`` names: ``python -m tests.pythons``.

Each version that is found on this machine gets an environment of its own beside ours; one that is not found
is said loudly. The version that runs this has been tested already, by everything else.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CLASSIFIER = "Programming Language :: Python :: 3."
OURS = f"{sys.version_info.major}.{sys.version_info.minor}"
SPARED = "--ignore-glob=*/test_http_*"  # what is behind a lock server
TESTS = ("tests/unit", "tests/clients", "tests/conformance")


def claimed() -> list[str]:
    """Return the versions that the project says it runs on."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    names = (name.rpartition(" ")[2] for name in project["classifiers"] if name.startswith(CLASSIFIER))
    return sorted(names, key=lambda name: int(name.partition(".")[2]))


def candidates(version: str) -> Iterator[Path]:
    """Return where a Python of that version may be: in the PATH, or where pyenv keeps them."""
    if found := shutil.which(f"python{version}"):
        yield Path(found)
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from sorted(pyenv.glob(f"versions/{version}.*/bin/python{version}"), reverse=True)


def find(version: str) -> Path | None:
    """Return a Python of that version that runs: what is in the PATH may be there in name only."""
    question = "import platform; print(platform.python_version())"
    for python in candidates(version):
        answer = subprocess.run([python, "-c", question], capture_output=True, text=True, check=False)
        if answer.stdout.startswith(f"{version}."):
            return python
    return None


def environment(version: str, python: Path) -> Path:
    """Return the Python of an environment with what the tests need, made anew if the project has changed."""
    folder = ROOT / ".venv" / version
    ready, wanted = folder / ".ready", (ROOT / "pyproject.toml").read_text("utf-8")
    inside = folder / "bin" / "python"
    if not ready.exists() or ready.read_text("utf-8") != wanted:
        print(f"installing what the tests need for Python {version}", flush=True)
        subprocess.run([python, "-m", "venv", "--clear", folder], check=True)
        install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-e", ".[test]"]
        subprocess.run([inside, *install], cwd=ROOT, check=True)
        ready.write_text(wanted, "utf-8")
    return inside


def main() -> int:
    others = [version for version in claimed() if version != OURS]
    failed, missing = [], []
    for version in others:
        if (python := find(version)) is None:
            missing.append(version)
            continue
        inside = environment(version, python)
        print(f"\n--- Python {version}", flush=True)
        tests = [inside, "-m", "pytest", "-q", "-n", "3", "--extent", "quick", SPARED, *TESTS]
        if subprocess.run(tests, cwd=ROOT, check=False).returncode:
            failed.append(version)
    for version in missing:
        print(f"!!! MISSING: Python {version} is not on this machine, and was NOT TESTED")
    if failed:
        print(f"FAILED on Python {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

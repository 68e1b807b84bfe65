"""Cron starts the same job three times: one runs it, the others skip.

A lock says who may run *now*. Whether it has run *already* is a fact about the job, so the job writes it
down, and looks at it inside the lock. Run it: python examples/nightly_job.py
"""

import multiprocessing
import os
import tempfile
import time
from pathlib import Path

from holdfast import Holdfast


def cron(folder: str, day: str, late: float) -> None:
    time.sleep(late)
    with Holdfast(f"sqlite:///{folder}/locks.db") as locks:

        @locks.guarded(key_from=lambda day: f"nightly-report:{day}", on_busy="skip")
        def report(day: str) -> str:
            done = Path(folder, f"report-{day}.txt")
            if done.exists():
                return "had run already, nothing to do"
            time.sleep(1.5)  # the report
            done.write_text(f"written by process {os.getpid()}\n")
            return "ran the report"

        print(f"started after {late:.1f} s: {report(day) or 'skipped, another one is at it'}", flush=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        context = multiprocessing.get_context("spawn")
        processes = [
            context.Process(target=cron, args=(folder, "2026-03-01", late)) for late in (0.0, 0.6, 2.4)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        reports = list(Path(folder).glob("report-*.txt"))
        print(f"reports written: {len(reports)}")
        assert len(reports) == 1


if __name__ == "__main__":
    main()

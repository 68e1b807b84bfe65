"""Two processes, one counter in a file: read, think, write. The lock keeps every step.

Run it: python examples/two_processes.py
"""

import multiprocessing
import tempfile
import time
from pathlib import Path

from holdfast import Holdfast

ROUNDS = 20


def count(folder: str, name: str) -> None:
    counter = Path(folder, "counter")
    longest = 0.0
    with Holdfast(f"sqlite:///{folder}/locks.db") as locks:
        for _ in range(ROUNDS):
            asked = time.monotonic()
            with locks.hold("counter", timeout=10):
                longest = max(longest, time.monotonic() - asked)
                seen = int(counter.read_text())
                time.sleep(0.005)  # without the lock, the other process would read the same number here
                counter.write_text(str(seen + 1))
    print(f"{name}: {ROUNDS} times in, longest wait {longest * 1000:.0f} ms")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        counter = Path(folder, "counter")
        counter.write_text("0")
        context = multiprocessing.get_context("spawn")
        processes = [context.Process(target=count, args=(folder, name)) for name in ("left", "right")]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        result = int(counter.read_text())
        print(f"counted {result} of {2 * ROUNDS}")
        assert result == 2 * ROUNDS, "an update was lost"


if __name__ == "__main__":
    main()

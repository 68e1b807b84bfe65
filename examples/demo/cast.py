"""The processes of the demo: started, given orders, listened to, killed, paused, and cleared away."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

NAMES = ("ada", "ben", "cleo", "dan", "eve")

Message = dict[str, Any]


class Cast:
    """The workers. What they tell is put on a queue, with their names."""

    def __init__(self, url: str, counter: Path) -> None:
        self.messages: queue.SimpleQueue[tuple[str, Message]] = queue.SimpleQueue()
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self._url = url
        self._counter = counter

    def start(self) -> None:
        """Start all workers."""
        for name in NAMES:
            process = subprocess.Popen(
                [sys.executable, "-m", "examples.demo.worker", self._url, str(self._counter), name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                # Ctrl-C is for us alone; and if we die, the kernel wakes a stopped group of our session.
                process_group=0,
            )
            self._processes[name] = process
            threading.Thread(target=self._listen, args=(name, process), daemon=True).start()

    def pid(self, name: str) -> int:
        """Return the process id of a worker."""
        return self._processes[name].pid

    def order(self, name: str, works: list[float]) -> None:
        """Let a worker take the lock, once for each of *works* seconds."""
        stdin = self._processes[name].stdin
        assert stdin is not None
        stdin.write(json.dumps({"works": works}) + "\n")
        stdin.flush()

    def signal(self, name: str, number: int) -> float:
        """Send a signal to a worker; return when."""
        os.kill(self.pid(name), number)
        return time.monotonic()

    def close(self) -> None:
        """End all processes, however they are."""
        for process in self._processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)  # reaches stopped ones, too
        for process in self._processes.values():
            process.wait()
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                try:
                    pipe.close()
                except OSError:  # an order that nobody read
                    continue

    def _listen(self, name: str, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                self.messages.put((name, json.loads(line)))
        except ValueError:  # cut off in the middle of a line, or closed
            pass
        self.messages.put((name, {"what": "gone", "at": time.monotonic()}))

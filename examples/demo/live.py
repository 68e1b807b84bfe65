"""``make demo``: a lock server with something going on, to be watched in its dashboard."""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from urllib.parse import quote

from examples.demo.cast import NAMES
from holdfast.cli.output import BOLD, DIM, has_colours, paint, say
from holdfast.cli.server_process import serve
from holdfast.server.main import Server
from holdfast.server.settings import ServerSettings

CRASH_EVERY = 20.0  # seconds
AWAY = 4.0  # until somebody new takes the place of who crashed
PATIENCE = 10.0  # seconds for who was told to end

WATCH = """\
 builds queue up, readers share an index until a writer comes, two GPUs are never
 used by three, every 25 s one of all pulls a model and the others are told;
 one of all is the leader, and offers workflows that five engines work through; and
 every 20 s a process is killed, whatever it holds, or asked to leave"""


class Traffic:
    """The processes that use the server."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._over = threading.Event()
        self._director = threading.Thread(target=self._direct, daemon=True)
        self._director.start()

    def close(self) -> None:
        """End all processes."""
        self._over.set()
        self._director.join()
        for name in list(self._processes):
            self._kill(name)

    def _direct(self) -> None:
        for name in NAMES:
            if self._over.wait(0.3):  # one after the other is nicer to look at
                return
            self._start(name)
        is_polite = False
        while not self._over.wait(CRASH_EVERY):
            name = random.choice(NAMES)
            if is_polite:
                self._dismiss(name)
            else:
                self._kill(name)
            is_polite = not is_polite
            if self._over.wait(AWAY):
                return
            self._start(name)

    def _start(self, name: str) -> None:
        self._processes[name] = subprocess.Popen(
            [sys.executable, "-m", "examples.demo.traffic", self._url, name],
            stdin=subprocess.PIPE,
            process_group=0,  # Ctrl-C is for us alone
        )

    def _dismiss(self, name: str) -> None:
        """Let one finish what it can, and leave."""
        process = self._processes[name]
        assert process.stdin is not None
        process.stdin.close()
        deadline = time.monotonic() + PATIENCE
        while process.poll() is None and time.monotonic() < deadline and not self._over.wait(0.1):
            continue
        self._kill(name)

    def _kill(self, name: str) -> None:
        process = self._processes.pop(name)
        process.kill()
        process.wait()
        assert process.stdin is not None
        process.stdin.close()


def play(*, port: int) -> int:
    """Serve a temporary store and keep it busy, until a signal ends it."""
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as folder:
        url = f"sqlite:///{quote(str(Path(folder) / 'locks.db'))}"
        settings = ServerSettings(url=url, port=port, history="all", log_level="warning", drain=2.0)
        traffic: list[Traffic] = []

        def begin(server: Server) -> None:
            colours = has_colours(sys.stdout)
            print(f"\n {paint('open ' + server.url + '/ in a browser, and watch', BOLD, colours=colours)}")
            print(paint(WATCH, DIM, colours=colours), flush=True)
            traffic.append(Traffic(server.url))

        try:
            serve(settings, begin)
        finally:
            for each in traffic:
                each.close()
    say("stopped; workers ended, temporary files removed")
    return 0

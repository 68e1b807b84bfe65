"""A worker that takes its turns in threads. The first is the main thread, which can be interrupted."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

from holdfast import Holdfast, StoreError
from proof.histories.recorder import Recorder
from proof.traffic.excuses import explains
from proof.traffic.fork import fork
from proof.traffic.hands import ThreadHands, Updater, pause, run
from proof.traffic.traffic import Traffic, settings
from proof.traffic.worker import Complaints, Config, impatient, look_at_clock, obey


class Threads:
    """The threads of a worker."""

    def __init__(self, config: Config, complaints: Complaints) -> None:
        self._config = config
        self._complaints = complaints
        self._recorder = Recorder(Path(config.folder), config.name)
        self._stopped = threading.Event()
        self._interruptible = False
        self._children: list[threading.Thread] = []
        self._hands: ThreadHands | None = None

    def work(self) -> None:
        commands = {
            "clock": look_at_clock,
            "fork": self._fork,
            "cancel": self._interrupt,
            "interrupt": self._interrupt,
            "stop": self._stopped.set,
        }
        signal.signal(signal.SIGINT, self._on_interrupt)
        threading.Thread(target=obey, args=(commands, self._complaints), daemon=True).start()
        locks = self._connect()
        if locks is None:
            return
        updater = Updater(self._config.resources)
        self._hands = hands = ThreadHands(locks, updater)
        others = [
            threading.Thread(target=self._take_turns, args=(hands, n), name=f"turns-{n}")
            for n in range(1, self._config.threads)
        ]
        for thread in others:
            thread.start()
        self._take_turns(hands, 0)
        for thread in [*others, *self._children]:
            thread.join()
        locks.close()
        updater.close()

    def _connect(self) -> Holdfast | None:
        """Make a client, as soon as the store can be reached: it may be away just now."""
        while not self._stopped.is_set():
            try:
                locks = Holdfast(impatient(self._config.url), settings=settings())
            except StoreError as error:
                if not explains(error):
                    raise
                pause(0.2)
            else:
                self._recorder.watch(locks)
                return locks
        return None

    def _take_turns(self, hands: ThreadHands, number: int) -> None:
        config = self._config
        worker = f"{config.name}.{number}"
        traffic = Traffic(hands, self._recorder, worker, config.seed, config.habits_here())
        main = number == 0
        while not self._stopped.is_set():
            try:
                try:
                    self._interruptible = self._interruptible or main
                    run(traffic.turn())
                except KeyboardInterrupt:
                    hands.forget_owner(traffic.owner)
            except Exception as error:
                self._complaints.add(error)
                self._stopped.set()
        if main:
            self._interruptible = False

    def _interrupt(self) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    def _on_interrupt(self, *_: object) -> None:
        """Interrupt the turn of the main thread, once: what it does to clean up is left alone."""
        if self._interruptible:
            self._interruptible = False
            raise KeyboardInterrupt

    def _fork(self) -> None:
        hands = self._hands
        if hands is None or not self._config.may_fork:
            return

        def target() -> None:
            seed = self._config.seed
            fork(hands.leases, self._recorder, lambda: hands.locks, seed, self._complaints)

        child = threading.Thread(target=target)
        self._children.append(child)
        child.start()


def work(config: Config, complaints: Complaints) -> None:
    """Take turns until told to stop."""
    Threads(config, complaints).work()

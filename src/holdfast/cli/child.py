"""A command that runs under a lock: a process group of its own, with the terminal and a guardian.

A group of its own, because stopping the command has to stop what it started as well. Then the terminal,
if there is one, has to be handed to it, or it could not read from it.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from holdfast.cli import guardian, orphans
from holdfast.errors import LeaseLost


@dataclass(frozen=True, slots=True)
class CommandEnded:
    """The command is over; *code* is its exit code, 128 + n if signal n ended it."""

    code: int


@dataclass(frozen=True, slots=True)
class CommandStopped:
    """The command was stopped by the terminal, with the signal *number*."""

    number: int


@dataclass(frozen=True, slots=True)
class SignalCame:
    """We were sent a signal."""

    number: int


@dataclass(frozen=True, slots=True)
class LeaseIsLost:
    """The lease is lost; *loss* says why, unless the lease itself knows."""

    loss: LeaseLost | None = None


Event = CommandEnded | CommandStopped | SignalCame | LeaseIsLost
Events = queue.SimpleQueue[Event]


class Child:
    """See the module. What happens to the command is *put* as events, from a thread.

    Without a *terminal* the command reads nothing, and what is typed there is for us.
    """

    def __init__(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        *,
        grace: float,
        until: float,
        put: Callable[[Event], None],
        terminal: bool = True,
    ) -> None:
        self._grace = grace
        self._terminal = _own_terminal() if terminal else None
        stdin = None if terminal else subprocess.DEVNULL
        self._guardian = orphans.start(
            [sys.executable, "-I", "-S", guardian.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            bufsize=0,
        )
        assert self._guardian.stdin is not None
        self._pipe = self._guardian.stdin
        os.set_blocking(self._pipe.fileno(), False)  # we do not wait for a guardian that hangs
        try:
            self._process = orphans.start(command, env=env, process_group=0, stdin=stdin)
        except BaseException:
            self._dismiss_guardian()
            raise
        self.group = self._process.pid
        self.trust_until(until)
        if self._terminal is not None:
            # From now on we are in the terminal's background, where writing may stop a process.
            signal.signal(signal.SIGTTOU, signal.SIG_IGN)
            self.go_on()
        self._put = put
        threading.Thread(target=self._watch, name="holdfast-child", daemon=True).start()

    def trust_until(self, until: float, *, stopping: bool = False) -> None:
        """Tell the guardian until when the command may live. Once it is *stopping*, it had its grace."""
        self._tell_guardian(f"{self.group} {0 if stopping else self._grace} {until}".encode())

    def signal(self, number: int) -> None:
        """Pass a signal on to the whole group."""
        guardian.signal_group(self.group, number)

    def ask_to_stop(self) -> None:
        """Send SIGTERM, to a stopped process as well."""
        guardian.ask_to_stop(self.group)

    def exists(self) -> bool:
        """Tell whether anything of the group is left, though the command itself may have ended."""
        return guardian.group_exists(self.group)

    def go_on(self) -> None:
        """Give the command the terminal and let it run.

        Ctrl-Z is undone by this: a command that is stopped would keep the lock for as long as it is.
        """
        if self._terminal is not None:
            with suppress(OSError):
                os.tcsetpgrp(self._terminal, self.group)
            guardian.signal_group(self.group, signal.SIGCONT)

    def close(self) -> None:
        """Take the terminal back, and dismiss the guardian. A command that still runs it will stop."""
        if self._terminal is not None:
            with suppress(OSError):
                os.tcsetpgrp(self._terminal, os.getpgrp())
        if self._process.returncode is not None:
            self._tell_guardian(guardian.DONE)
        self._dismiss_guardian()

    def _watch(self) -> None:
        pid = self._process.pid
        while True:
            _, status = os.waitpid(pid, os.WUNTRACED)
            if not os.WIFSTOPPED(status):
                break
            if self._terminal is not None and (number := os.WSTOPSIG(status)) != signal.SIGSTOP:
                self._put(CommandStopped(number))
        code = os.waitstatus_to_exitcode(status)
        self._process.returncode = code
        orphans.forget(pid)
        self._put(CommandEnded(128 - code if code < 0 else code))

    def _tell_guardian(self, line: bytes) -> None:
        with suppress(OSError):
            self._pipe.write(line + b"\n")

    def _dismiss_guardian(self) -> None:
        self._pipe.close()
        self._guardian.wait()
        orphans.forget(self._guardian.pid)


def _own_terminal() -> int | None:
    """Return the terminal that we are in the foreground of, if there is one."""
    try:
        fd = sys.stdin.fileno()
        return fd if os.isatty(fd) and os.tcgetpgrp(fd) == os.getpgrp() else None
    except (OSError, ValueError, AttributeError):
        return None

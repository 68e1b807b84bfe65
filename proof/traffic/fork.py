"""A fork in the middle of the traffic: the child owns nothing that it sees, and can take locks of its own."""

from __future__ import annotations

import faulthandler
import os
import threading
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NoReturn

from holdfast import Holdfast, LeaseLost, NotHeld, StoreError
from holdfast.client.leases import BaseLease
from holdfast.clock import boot_time
from proof.histories.recorder import Recorder
from proof.histories.records import PLAIN
from proof.traffic.hands import ThreadHands, Updater, run
from proof.traffic.resources import REST
from proof.traffic.traffic import Habits, Traffic
from proof.traffic.worker import COMPLAINT, MARK, Complaints

TURNS = 2
PATIENCE = 25.0  # seconds for a child that has hardly anything to do


def fork(
    leases: Mapping[str, BaseLease],
    recorder: Recorder,
    client: Callable[[], Holdfast],
    seed: str,
    complaints: Complaints,
) -> None:
    """Fork a child that tries to use what is in *leases* and a *client*, and see it end well.

    For a thread of its own.
    """
    with REST.kept():
        pid = os.fork()
    if pid == 0:
        _be_a_child(list(leases.values()), recorder, client, seed)
    deadline = boot_time() + PATIENCE + 5.0
    while (ended := os.waitpid(pid, os.WNOHANG)) == (0, 0):
        if boot_time() > deadline:  # paused together with us, or it would have ended itself
            os.kill(pid, 9)
        threading.Event().wait(0.02)
    if ended[1]:
        complaints.add(f"the child {recorder.name} forked ended with status {ended[1]}")


def _be_a_child(
    inherited: list[BaseLease], recorder: Recorder, client: Callable[[], Holdfast], seed: str
) -> NoReturn:
    status = COMPLAINT
    try:
        faulthandler.dump_traceback_later(PATIENCE, exit=True)
        for lease in inherited:
            _is_useless(lease)
        with suppress(StoreError):  # it cannot be reached just now
            hands = ThreadHands(client(), Updater({}))
            traffic = Traffic(hands, recorder, f"{recorder.name}.0", seed, Habits(rest=0.0, lasts=0.0))
            for _ in range(TURNS):
                run(traffic.turn(PLAIN))
        status = 0
    except BaseException:
        os.write(2, f"{MARK}in {recorder.name}:\n{traceback.format_exc()}\n".encode())
    finally:
        os._exit(status)


def _is_useless(lease: Any) -> None:
    """See that nobody can use in a child what its parent holds."""
    assert not lease.held, lease
    for use in (lease.check, lambda: _release(lease)):
        try:
            use()
        except (LeaseLost, NotHeld):
            continue
        raise AssertionError(f"a child could use {lease!r} of its parent")


def _release(lease: Any) -> None:
    releasing = lease.release()
    if releasing is not None:  # a coroutine, which is refused before it has to wait for anything
        run(releasing)

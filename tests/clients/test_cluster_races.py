"""What two threads of one instance can do to each other."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.client.claims import Claimant
from holdfast.clock import boot_time
from holdfast.core.cluster import Claim, Heartbeat, Leave
from tests.clients.support import PATIENCE


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/locks.db"


def test_whoever_is_interrupted_returns_nothing_that_another_thread_asks_for(url: str):
    """The effect of a claim is there, its answer is not. Then a thread that only waited is stopped."""
    applied, go_on = threading.Event(), threading.Event()
    with Holdfast(url) as locks, Holdfast(url) as other:
        me: Any = locks.join()
        stranger = other.join()
        store: Any = locks._engine.store
        execute = store.execute

        def slow(request: Any) -> Any:
            answer = execute(request)
            if isinstance(request, Claim) and answer.works:
                applied.set()
                assert go_on.wait(PATIENCE)
            return answer

        store.execute = slow
        got: list[Any] = []
        worker = threading.Thread(target=lambda: got.append(next(me.claims("job"))), daemon=True)
        worker.start()
        other.offer(["job:1"])
        assert applied.wait(PATIENCE)
        Claimant(me._workload, ("job",))._undo_asking()
        assert stranger.claim("job") == []
        go_on.set()
        worker.join(PATIENCE)
        (work,) = got
        work.check()
        work.complete()


@pytest.mark.parametrize("kind", [Heartbeat, Claim])
def test_a_request_that_is_under_way_does_not_make_a_loss_of_a_leave(kind: type, url: str):
    under_way, left, told = threading.Event(), threading.Event(), threading.Event()
    with Holdfast(url) as locks:
        me: Any = locks.join(heartbeat=0.2, ttl=60)
        store: Any = locks._engine.store
        execute = store.execute

        def slow(request: Any) -> Any:
            if isinstance(request, kind):
                under_way.set()
                assert left.wait(PATIENCE)
                answer = execute(request)
                told.set()
                return answer
            answer = execute(request)
            if isinstance(request, Leave):
                left.set()
                assert told.wait(PATIENCE)
            return answer

        store.execute = slow
        ended: list[Any] = []
        worker = threading.Thread(target=lambda: ended.append(list(me.claims("job"))), daemon=True)
        worker.start()
        assert under_way.wait(PATIENCE)
        me.leave()
        worker.join(PATIENCE)
        assert (ended, me.state, me.lost) == ([[]], "left", None)


def test_what_is_to_be_given_back_waits_for_renewals_that_are_due(url: str):
    with Holdfast(url) as locks:
        keeping: Any = locks._engine.keeper
        lease: Any = locks.acquire("held", ttl=60)
        done: list[int] = []
        with keeping._mutex:  # its thread looks on
            lease._holding.kept.renew_at = boot_time() - 1
        keeping._chores.extend([lambda: done.append(1), lambda: done.append(2)])
        keeping._do_chores()
        assert done == [1]
        keeping._chores.clear()

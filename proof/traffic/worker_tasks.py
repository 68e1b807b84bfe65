"""A worker that takes its turns in tasks. Each turn is a task of its own, and so can be cancelled."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import Any, TypeVar

from holdfast import AsyncHoldfast, Holdfast, StoreError
from holdfast.client.leases import BaseLease
from proof.histories.recorder import Recorder
from proof.histories.records import OPERATION
from proof.traffic.excuses import explains
from proof.traffic.fork import fork
from proof.traffic.hands import Doing, Updater, operation_of, pause
from proof.traffic.traffic import Traffic, settings
from proof.traffic.worker import Complaints, Config, impatient, look_at_clock, obey

T = TypeVar("T")


class TaskHands:
    """The hands of a task."""

    def __init__(self, locks: AsyncHoldfast, updater: Updater) -> None:
        self.locks = locks
        self.leases: dict[str, BaseLease] = {}
        self._updater = updater

    async def acquire(self, key: str, **options: Any) -> BaseLease:
        return await self.locks.acquire(key, **options)

    async def try_acquire(self, key: str, **options: Any) -> BaseLease | None:
        return await self.locks.try_acquire(key, **options)

    def block(self, key: str, **options: Any) -> AbstractAsyncContextManager[BaseLease]:
        return self.locks.hold(key, **options)

    async def release(self, lease: Any) -> None:
        await lease.release()

    async def elsewhere(self, doing: Coroutine[Any, Any, T]) -> T:
        return await asyncio.create_task(doing)

    async def downgrade(self, lease: Any) -> None:
        await lease.downgrade()

    async def operate(self, key: str, doing: Doing, **options: Any) -> Any:
        async def do() -> str:
            await asyncio.sleep(doing.seconds)
            return doing.outcome()

        if doing.once:
            return await self.locks.run_once(key, do, **options)
        async with self.locks.operation(OPERATION, operation_of(key), **options) as mine:
            if not mine.todo:
                return mine.result
            doing.began(mine.lease)
            try:
                mine.succeed(await do())
            finally:
                doing.ended(mine.lease)
        return doing.value

    async def break_lock(self, key: str) -> None:
        await self.locks.break_lock(key, reason="a turn of the traffic wants it")

    async def update(self, kind: str, lease: Any, key: str, value: str, seconds: float, check: bool) -> None:
        loop = asyncio.get_running_loop()

        def update() -> None:
            self._updater.update(kind, lease, key, value, lambda: pause(seconds), check=check, loop=loop)

        updating = loop.run_in_executor(None, update)
        # If we are cancelled it goes on, and what it raises is nobody's business any more.
        updating.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.shield(updating)

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def forget(self, attempt: str) -> None:
        self.locks._engine.keeper.drop(attempt)


class Tasks:
    """The tasks of a worker."""

    def __init__(self, config: Config, complaints: Complaints) -> None:
        self._config = config
        self._complaints = complaints
        self._recorder = Recorder(Path(config.folder), config.name)
        self._dice = random.Random(f"{config.seed} {config.name}")
        self._stopped = False
        self._turns: dict[int, asyncio.Task[None]] = {}
        self._children: list[threading.Thread] = []
        self._hands: TaskHands | None = None

    async def work(self) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._on_trouble)

        def in_loop(function: Callable[[], None]) -> Callable[[], None]:
            def pass_on() -> None:
                with suppress(RuntimeError):  # the loop has ended, and all turns with it
                    loop.call_soon_threadsafe(function)

            return pass_on

        commands = {
            "clock": look_at_clock,
            "fork": self._fork,
            "cancel": in_loop(self._cancel),
            "interrupt": in_loop(self._cancel),
            "stop": in_loop(self._stop),
        }
        threading.Thread(target=obey, args=(commands, self._complaints), daemon=True).start()
        locks = AsyncHoldfast(impatient(self._config.url), settings=settings())
        self._recorder.watch(locks)
        while not self._stopped:
            try:
                await locks.__aenter__()
                break
            except StoreError as error:
                if not explains(error):
                    raise
                await asyncio.sleep(0.2)
        updater = Updater(self._config.resources)
        self._hands = hands = TaskHands(locks, updater)
        await asyncio.gather(*(self._take_turns(hands, n) for n in range(self._config.threads)))
        for child in self._children:
            await asyncio.to_thread(child.join)
        await locks.close()
        updater.close()

    async def _take_turns(self, hands: TaskHands, number: int) -> None:
        config = self._config
        worker = f"{config.name}.{number}"
        traffic = Traffic(hands, self._recorder, worker, config.seed, config.habits_here())
        while not self._stopped:
            self._turns[number] = turn = asyncio.create_task(traffic.turn())
            await asyncio.wait([turn])
            if not turn.cancelled() and (error := turn.exception()):
                self._complaints.add(error)
                self._stopped = True

    def _cancel(self) -> None:
        for turn in list(self._turns.values()):
            if self._dice.random() < 0.5:
                turn.cancel()

    def _stop(self) -> None:
        self._stopped = True

    def _on_trouble(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self._complaints.add(context.get("exception") or str(context["message"]))

    def _fork(self) -> None:
        hands, config = self._hands, self._config
        if hands is None or not config.may_fork:
            return

        def client() -> Holdfast:
            """Return a client that needs no loop: the child has none."""
            locks = Holdfast(impatient(config.url), settings=settings())
            self._recorder.watch(locks)
            return locks

        def target() -> None:
            fork(hands.leases, self._recorder, client, config.seed, self._complaints)

        child = threading.Thread(target=target)
        self._children.append(child)
        child.start()


def work(config: Config, complaints: Complaints) -> None:
    """Take turns until told to stop."""
    asyncio.run(Tasks(config, complaints).work())

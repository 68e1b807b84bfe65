"""What happens to connections: cut, deaf, slow, refused, and answers that are lost or arrive by half.

Each is done by a proxy: before the lock server for those who use HTTP, or before the database for everybody,
the lock server included.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from proof.faults.base import DATABASE_NETWORK, HTTP_NETWORK, Act, Fault
from proof.faults.scene import Scene
from tests.servers import Proxy
from tests.servers.stream import Pair

if TYPE_CHECKING:
    from proof.stage.stage import Stage


class OfNetwork(Fault):
    place = HTTP_NETWORK

    def places(self, stage: Stage) -> tuple[str, ...]:
        return (HTTP_NETWORK,) if stage.proxy is None else (HTTP_NETWORK, DATABASE_NETWORK)


class CutConnections(OfNetwork):
    """All connections are reset, again and again. New ones are welcome."""

    name = "cut connections"
    longest = 1.2

    @contextmanager
    def inject(self, scene: Scene, place: str, dice: random.Random) -> Iterator[Act]:
        yield Act(place, again=scene.network(place).cut, every=dice.uniform(0.05, 0.3))


class DeafNetwork(OfNetwork):
    """Nothing is passed on; what was said meanwhile arrives late."""

    name = "deaf network"
    shortest, longest = 0.8, 3.0

    @contextmanager
    def inject(self, scene: Scene, place: str, dice: random.Random) -> Iterator[Act]:
        proxy = scene.network(place)
        proxy.deaf()
        try:
            yield Act(place)
        finally:
            proxy.hear()


class LostAnswers(OfNetwork):
    """What is asked is done, and nobody is told."""

    name = "lost answers"
    shortest, longest = 0.5, 2.5

    @contextmanager
    def inject(self, scene: Scene, place: str, dice: random.Random) -> Iterator[Act]:
        proxy = scene.network(place)
        proxy.lose_answers()
        try:
            yield Act(place)
        finally:
            proxy.restore()


class Delays(OfNetwork):
    """Everything takes longer, by an amount that changes all the time."""

    name = "delays"
    longest = 3.0

    @contextmanager
    def inject(self, scene: Scene, place: str, dice: random.Random) -> Iterator[Act]:
        proxy = scene.network(place)
        longest = dice.choice((0.05, 0.2, 0.5))
        try:
            yield Act(
                place,
                f"up to {longest} s each way",
                again=lambda: proxy.delay(dice.uniform(0, longest)),
                every=dice.uniform(0.1, 0.4),
            )
        finally:
            proxy.restore()


class RefuseConnections(OfNetwork):
    """All connections are reset, and nobody is let in again for a while."""

    name = "refuse connections"
    longest = 2.5

    @contextmanager
    def inject(self, scene: Scene, place: str, dice: random.Random) -> Iterator[Act]:
        proxy = scene.network(place)
        proxy.refuse()
        try:
            proxy.cut()
            yield Act(place)
        finally:
            proxy.accept()


class HalfAnAnswer(OfNetwork):
    """The next answer of some connections breaks off in the middle, and so does the connection."""

    name = "half an answer"
    longest = 1.5

    @contextmanager
    def inject(self, scene: Scene, place: str, dice: random.Random) -> Iterator[Act]:
        proxy = scene.network(place)
        try:
            yield Act(place, again=lambda: break_answers(proxy, dice), every=dice.uniform(0.05, 0.2))
        finally:
            break_answers(proxy, None)


def break_answers(proxy: Proxy, dice: random.Random | None) -> None:
    """Have the next answer of about half of the connections broken; without dice, of none any more."""

    def choose() -> None:  # in the thread of the proxy, which alone may touch its connections
        for pair in proxy._pairs:
            if dice is None:
                vars(pair.down).pop("keep", None)
            elif dice.random() < 0.5:
                _break_answer(pair)

    proxy._order(choose)


def _break_answer(pair: Pair) -> None:
    def keep_half(piece: bytes, until: float) -> None:
        half = piece[: len(piece) // 2]
        if half and not pair.broken:  # an empty piece would be the end of the stream, in good order
            type(pair.down).keep(pair.down, half, until)
        pair.broken = True  # the half is passed on, then both ends are reset

    vars(pair.down)["keep"] = keep_half

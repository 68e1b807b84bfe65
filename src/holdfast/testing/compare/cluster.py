"""Random requests about instances and their work, beside those for the locks of the same keys."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.core import cluster as c
from holdfast.core.data import replace
from holdfast.core.family import PLAIN, Terms
from holdfast.core.requests import Acquire, Client, History, Request
from holdfast.stores.base import micros
from holdfast.testing.compare.locks import Makers, Traffic

WORK = ("job:1", "job:2", "job:3", "job:10", "node:1:fetch", "node:2", "plain", ":x")
TYPES = ("job", "node", "", "nod")
ENGINES = ("e", "f", "g")
INSIDE = "-inside"  # so end the attempts of engines to enter a lock that they have
TERMS = (1.0, 3.5, 5.0, 15.0, 15.0)  # of assignments
DATA = ("null", '{"n": 1}', '"\\u9501"', '"锁 🔒"')
RESULTS = ("", '"done"', "7")
ERRORS = ("", "no space left: '%' \"_\" \\")
ENDINGS: tuple[c.Ending, ...] = ("completed", "completed", "failed", "failed", "returned")


@dataclass(eq=False)
class ClusterTraffic(Traffic):
    """A few engines at a time, that go on being new: those before have died or left.

    What they claim and finish is mostly what there is; now and then it is a late copy, or somebody else's.
    """

    keys: Sequence[str] = WORK
    engines: list[str] = field(default_factory=list)  # that have joined, in their order
    gone: set[str] = field(default_factory=set)  # that were told so
    claims: dict[str, c.Claim] = field(default_factory=dict)  # of each engine the last
    given: deque[tuple[str, str, int]] = field(default_factory=lambda: deque(maxlen=10))

    def __post_init__(self) -> None:
        super().__post_init__()
        mostly_plain = ("plain", "plain", "plain", "shared", "anything")
        self.flavours = {key: self.dice.choice(mostly_plain) for key in self.keys}
        self._asked: deque[Request[Any]] = deque(maxlen=12)  # that may come once more, late

    def makers(self) -> Makers:
        """Return what is asked, and how often."""
        return {
            self._join: 5,
            self._beat: 8,
            self._leave: 2,
            self._offer: 12,
            self._claim: 24,
            self._assign: 12,
            self._finish: 20,
            self._forget: 2,
            self._once_more: 4,
            self._survey: 6,
            self._acquire: 8,
            self._release: 4,
            self._renew: 8,
            self._withdraw: 2,
            self._break: 2,
            self._sweep: 2,
            self._look: 4,
        }

    def next(self) -> Request[Any]:
        """Return the next request; some of them come again."""
        request = super().next()
        if isinstance(request, c.Join | c.Heartbeat | c.Leave | c.Offer | c.Claim | c.Assign | c.Finish):
            self._asked.append(request)
        return request

    def heard(self, request: Request[Any], answer: object) -> None:
        """Learn from an answer, also when something will be over."""
        super().heard(request, answer)
        if isinstance(answer, c.Claimed):
            for work in answer.works:
                self._note(work)
            if answer.again_in is not None:
                self.instants.append(self.now + micros(answer.again_in))
        elif isinstance(answer, c.Assigned):
            self._note(answer)
        elif isinstance(answer, c.NotDue):
            self.instants.append(self.now + micros(answer.due_in))
        elif isinstance(answer, c.Beat) and answer.state in ("left", "dead"):
            self.gone.add(getattr(request, "id"))  # noqa: B009 - all requests that are answered so have one
        elif isinstance(request, c.Finish) and self.dice.random() < 0.8:
            self.given = deque((each for each in self.given if each[1] != request.attempt), maxlen=10)

    def everything(self) -> Iterator[Request[Any]]:
        """Return requests that show all there is to see."""
        yield from super().everything()
        for engine in self.engines[-3:]:
            yield History(c.instance_key(engine))
        yield c.ListInstances(now=self._at())
        yield c.ListWork(now=self._at())
        yield c.CountWork(now=self._at())

    def _note(self, work: c.Assigned) -> None:
        self.tokens[work.key, work.attempt] = work.token
        self.given.append((work.key, work.attempt, work.token))

    def _where(self) -> Client:
        """Return where an engine is: mostly at our client, or behind it."""
        at = self.client
        return self.dice.choice((at, at, replace(at, pid=7), replace(at, instance=f"{at.instance}/s-1")))

    def _at_work(self) -> Client:
        """Return where an engine works: here, because over HTTP one behind us is forgotten if it is wrong."""
        return self.dice.choice((self.client, self.client, replace(self.client, pid=7)))

    def _engine(self) -> str:
        """Return an engine: mostly one that has reason to believe that it lives."""
        living = [engine for engine in self.engines if engine not in self.gone]
        if living and self.dice.random() < 0.9:
            return self.dice.choice(living[-4:])
        return self.dice.choice(self.engines[-4:] or ["nobody"])

    def _join(self) -> c.Join:
        dice = self.dice
        engine = f"{dice.choice(ENGINES)}-{self.steps // 25}"
        if engine not in self.engines:
            self.engines.append(engine)
        capacity = dice.choice((1, 2, 3, 8))
        return c.Join(engine, engine[0], self._where(), capacity, self._lifetime(), "2.1", now=self._at())

    def _lifetime(self) -> float:
        return self._lasting((2.0, 15.0, 30.0, 60.0, 60.0))

    def _lasting(self, durations: Sequence[float]) -> float:
        chosen = self.dice.choice(durations)
        self.instants.append(self.now + micros(chosen))
        return chosen

    def _beat(self) -> c.Heartbeat:
        drain = self.dice.random() < 0.06
        return c.Heartbeat(self._engine(), self._where(), self._lifetime(), drain, now=self._at())

    def _leave(self) -> c.Leave:
        return c.Leave(self._engine(), now=self._at())

    def _when(self) -> float | None:
        """Return an instant to offer something for: mostly none."""
        ahead = self.dice.choice((None, None, None, -2.0, 0.0, 1.0, 5.0))
        if ahead is None:
            return None
        self.instants.append(self.now + micros(ahead))
        return (self.now + micros(ahead)) / 1e6

    def _offer(self) -> c.Offer:
        dice = self.dice
        works = tuple(
            c.OfferedWork(
                self._key(),
                dice.choice(DATA),
                dice.choice((0, 0, 1, 2, 3)),
                dice.choice((0.0, 0.0, 0.0, self._duration())),
                self._when(),
            )
            for _ in range(dice.randrange(1, 6))
        )
        return c.Offer(works, again=dice.random() < 0.4, now=self._at())

    def _claim(self) -> c.Claim:
        dice, engine = self.dice, self._engine()
        last = self.claims.get(engine)
        number = 1 if last is None else last.number + dice.choice((1, 1, 1, 1, 2))
        claim = self.claims[engine] = c.Claim(
            engine,
            number,
            f"{engine}-{number}",
            tuple(dice.sample(TYPES, dice.randrange(1, 4))),
            dice.choice((1, 1, 2, 3, 100)),
            self._lasting(TERMS),
            self._at_work(),
            spread=dice.choice((0.0, 0.0, 0.5, 2.0)),
            now=self._at(),
        )
        return claim

    def _assign(self) -> c.Assign:
        dice, key, attempt = self.dice, self._key(), self._attempt()
        engine = self._engine() if dice.random() < 0.7 else ""
        return c.Assign(
            key,
            attempt,
            self.owner_of(key, attempt),
            self._lasting(TERMS),
            self._at_work(),
            id=engine,
            data=dice.choice((None, None, *DATA)),
            due=dice.random() < 0.3,
            again=dice.random() < 0.4,
            now=self._at(),
        )

    def _finish(self) -> c.Finish:
        dice = self.dice
        recent = list(self.given)[-5:]
        key, attempt, token = dice.choice(recent) if recent else self._known()
        match dice.random():
            case roll if roll < 0.05:
                attempt = self._attempt()
            case roll if roll < 0.1:
                token += dice.choice((-1, 1))
            case roll if roll < 0.13:
                key = self._key()
        ending = dice.choice(ENDINGS)
        return c.Finish(
            key,
            attempt,
            token,
            ending,
            dice.choice(RESULTS if ending == "completed" else ERRORS),
            retry=dice.choice((None, 0.0, 1.0, self._duration())),
            at=self._when(),
            data=dice.choice((None, None, *DATA)),
            retire=dice.random() < 0.3,
            now=self._at(),
        )

    def _acquire(self) -> Acquire:
        """Ask for a lock, at times as an engine that may have it assigned, and enters it again."""
        asked = super()._acquire()
        if self.dice.random() < 0.7:
            return asked
        engine = self._engine()
        return replace(asked, attempt=f"{engine}{INSIDE}", owner=engine, terms=PLAIN)

    def owner_of(self, key: str, attempt: str) -> str:
        """Return the owner that an attempt belongs to: what an engine enters again is its own."""
        inside = attempt.endswith(INSIDE)
        return attempt.removesuffix(INSIDE) if inside else super().owner_of(key, attempt)

    def terms_of(self, key: str, attempt: str) -> Terms:
        """Return the terms on which an attempt asks for a key."""
        return PLAIN if attempt.endswith(INSIDE) else super().terms_of(key, attempt)

    def _forget(self) -> c.Forget:
        return c.Forget(self._key(), "olga", now=self._at())

    def _once_more(self) -> Request[Any]:
        """Return an earlier request as it was, but for the time: an answer was lost, or a copy is late."""
        if not self._asked:
            return self._survey()
        late = self.dice.choice(self._asked)
        return replace(late, now=self._at())

    def _survey(self) -> Request[Any]:
        dice = self.dice
        match dice.randrange(4):
            case 0:
                return c.InspectWork(self._key(), now=self._at())
            case 1:
                return c.CountWork(now=self._at())
            case 2:
                after = dice.choice(("", "", *self.engines[-4:]))
                return c.ListInstances(after, dice.choice((1, 2, 100)), now=self._at())
            case _:
                return c.ListWork(
                    prefix=dice.choice(("", "", "job:", "job:1", "n")),
                    state=dice.choice((None, None, *c.WORK_STATES)),
                    instance=dice.choice((None, None, "", *self.engines[-4:])),
                    after=dice.choice(("", "", *self.keys)),
                    limit=dice.choice((1, 2, 100)),
                    now=self._at(),
                )

"""One instance as its client knows it: when to say that we are there, and how long that is believed.

Pure bookkeeping, as `keeper` is for leases. A runner sends the heartbeat when it is due and reports what came
of it. The truth about our membership is the store's; here is only how long we may count on it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from holdfast import errors
from holdfast.core.cluster import Beat, Heartbeat, InstanceState
from holdfast.core.plans import Roll
from holdfast.core.refusals import DEAD, LEFT
from holdfast.core.requests import Client
from holdfast.core.settings import Settings, seconds


class Membership:
    """An instance that has joined, until it leaves or is lost."""

    def __init__(
        self, id: str, client: Client, *, ttl: float, heartbeat: float, settings: Settings, roll: Roll
    ) -> None:
        self.id = id
        self.client = client
        self.ttl = ttl
        self.heartbeat = heartbeat
        self.settings = settings
        self.roll = roll
        self.state: InstanceState = "alive"
        self.living = 0  # how many there are that take work, with us; 0: not known yet
        self.draining = False  # we want no more work, whether or not the store knows
        self.beat_at = -math.inf
        self.trusted_until = -math.inf
        self.failures = 0
        self.trouble: str | None = None
        self.lost: errors.InstanceLost | None = None
        self.tell: Callable[[], None] | None = None  # called by the runner once the membership is lost

    @property
    def takes_work(self) -> bool:
        """Whether it may be given work, as far as we know."""
        return self.state == "alive" and not self.draining and self.lost is None

    def loss(self, now: float) -> errors.InstanceLost | None:
        """Return why the membership is lost at *now*, or None while it can be trusted."""
        if self.lost is None and self.state != "left" and now >= self.trusted_until:
            missed = f"no heartbeat was answered for {self.ttl:g} s"
            self.lose(f"{missed} ({self.trouble})" if self.trouble else missed)
        return self.lost

    def lose(self, reason: str) -> bool:
        """Mark the membership as lost, for good; the first reason stands. Return whether it was the first."""
        if self.lost is not None or self.state == "left":
            return False
        self.lost = errors.InstanceLost(self.id, reason)
        self.state = "dead"
        return True

    def leave(self) -> None:
        """Note that we have left. Nothing is lost by that, and nothing can be any more."""
        if self.lost is None:
            self.state = "left"

    def request(self) -> Heartbeat:
        """Return the heartbeat to send."""
        return Heartbeat(self.id, self.client, self.ttl, drain=self.draining)

    def next_at(self) -> float:
        """Return when there is something to do next; infinity once it is over."""
        if self.state in ("left", "dead"):
            return math.inf
        return min(self.beat_at, self.trusted_until)

    def answered(self, beat: Beat, *, asked: float) -> bool:
        """Take in how the store sees us. Return whether we are lost by that.

        A heartbeat that was sent before we were lost, or left, and is answered after it, changes nothing.
        """
        self.living = beat.living
        if self.lost is not None or self.state == "left":
            return False
        if beat.state in ("dead", "left"):
            return self.lose(DEAD if beat.state == "dead" else LEFT)
        self.state = beat.state
        self.failures = 0
        self.trouble = None
        self.beat_at = asked + self.heartbeat
        trusted_until = asked + self.ttl - self.settings.margin_for(self.ttl)
        self.trusted_until = max(self.trusted_until, trusted_until)
        return False

    def told(self, beat: Beat) -> bool:
        """Take in a state that is told in place of another answer. It moves no end: we did not heartbeat."""
        self.living = beat.living
        if beat.state == "draining":
            self.draining = True
            return False
        return self.lose(DEAD if beat.state == "dead" else LEFT)

    def failed(self, trouble: str, *, now: float) -> None:
        """Take in a heartbeat that failed: try again after a while. An error is not a loss."""
        self.failures += 1
        self.trouble = trouble
        self.beat_at = now + self.settings.backoff.delay(self.failures, self.roll())


def check_timing(heartbeat: object, ttl: object, settings: Settings) -> tuple[float, float]:
    """Return *heartbeat* and *ttl* in seconds if an instance can live with them (R13)."""
    beat, length = seconds(heartbeat, "heartbeat"), settings.check_ttl(ttl)
    renewal = length * settings.renew_at
    if not 0 < beat < renewal:
        raise errors.SettingsError(
            f"0 < heartbeat {beat:g} s < renewal {renewal:g} s < ttl {length:g} s must hold: an instance that"
            " heartbeats later could not try again before it is taken for dead. Use a longer ttl, or a"
            " shorter heartbeat"
        )
    return beat, length

"""What a caller asked for, once it was checked."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.client.options import OnLost
from holdfast.client.place import Place
from holdfast.core.data import data
from holdfast.core.requests import Acquire


@data
class Wish:
    """What a caller asked for: the request, and how to treat the lease."""

    request: Acquire
    timeout: float | None
    max_hold: float | None
    renew: bool
    on_lost: OnLost | None
    place: Place  # where it was asked for
    named: bool  # an owner= was given: what is inside its block is not that owner by itself
    unless: Callable[[], bool] | None = None  # give up waiting, with `Stopped`, once this is so

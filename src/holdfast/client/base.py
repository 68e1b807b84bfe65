"""What `Holdfast` and `AsyncHoldfast` have in common for their callers, besides the methods that wait."""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn

from holdfast.client.engine import Engine
from holdfast.core.events import HistoryLevel
from holdfast.core.settings import Seconds, Settings


class BaseClient:
    """A client: settings and a name, in front of its engine."""

    _engine_class: ClassVar[type[Engine]]

    def __init__(
        self,
        url: str | Any | None = None,
        *,
        settings: Settings | None = None,
        ttl: Seconds | None = None,
        max_hold: Seconds | None = None,
        history: HistoryLevel | None = None,
        wait_for_store: Seconds | None = None,
    ) -> None:
        given = {"ttl": ttl, "max_hold": max_hold, "history": history, "wait_for_store": wait_for_store}
        changes = {name: each for name, each in given.items() if each is not None}
        self._engine = self._engine_class(type(self).__name__, url, settings, changes)
        self.settings = self._engine.settings
        self.url = self._engine.url

    @property
    def instance(self) -> str:
        """The id of this client, which its locks are shown with."""
        return self._engine.client.instance

    def __repr__(self) -> str:
        return repr(self._engine)

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self!r} cannot be sent to another process; send its url, and make a client there")

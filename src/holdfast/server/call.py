"""One request that was let in: what it asks for, who asks, and what they may."""

from __future__ import annotations

from typing import Any

from holdfast.core.access import Verb
from holdfast.core.data import data
from holdfast.core.events import HistoryLevel
from holdfast.core.requests import Client
from holdfast.core.wire import Route
from holdfast.server.admission.access import Principal, scoped
from holdfast.server.http.message import HTTPRequest


@data
class Call:
    """What a handler is given."""

    http: HTTPRequest
    route: Route
    named: str  # what the path names: a key, an id, a file
    given: dict[str, Any]  # the body or the query, read
    principal: Principal
    history: HistoryLevel | None

    @property
    def wants_stream(self) -> bool:
        """Whether the caller asks for an event stream."""
        return "text/event-stream" in self.http.headers.get("accept", "")

    @property
    def client(self) -> Client:
        """Who asks, as far as the body says."""
        who = self.given["client"] or {"instance": "", "host": None, "pid": 0}
        return Client(who["instance"], who["host"] or self.http.remote, who["pid"])

    @property
    def by(self) -> str:
        """Who does it, for the history: as the caller says it, within what it may call itself."""
        said = self.given["by"]
        return scoped(self.principal, said) if said else self.principal.name or self.http.remote

    def request(self, **known: Any) -> Any:
        """Return the request that the caller asks for; what is *known* counts more than what it says.

        Who asks, and who does it, is not only for the caller to say.
        """
        given = self.given
        if "client" in given:
            known["client"] = self.client
        if "by" in given:
            known["by"] = self.by
        return self.route.make(self.named, given, **known)

    def require(self, verb: Verb, key: str) -> None:
        """Refuse if the caller may not do this to *key*, whether or not there is such a lock."""
        self.principal.require(verb, key)

    def may_know(self, key: str) -> bool:
        """Tell whether the caller may be told of *key*."""
        return self.principal.may("observe", key) or self.principal.may("acquire", key)

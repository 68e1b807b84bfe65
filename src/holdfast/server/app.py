"""One request, from its arrival to its answer: who asks, whether they may, and what comes of it.

Whatever goes wrong becomes a problem with a status, a name and what to do. How a request is answered is
in `acting`, `looking` and `standing`.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

from holdfast import errors
from holdfast.core.cluster import instance_key
from holdfast.core.events import HISTORY_LEVELS
from holdfast.log import log
from holdfast.server.admission.access import ANYONE, Access, Principal, scoped
from holdfast.server.admission.limits import Budget
from holdfast.server.backend import Backend
from holdfast.server.handlers.acting import Acting
from holdfast.server.handlers.call import Call
from holdfast.server.handlers.looking import Looking
from holdfast.server.handlers.membership import Membership
from holdfast.server.handlers.replies import outward, refused
from holdfast.server.handlers.standing import Standing
from holdfast.server.handlers.working import Working
from holdfast.server.http.message import HTTPRequest, Response, Stream
from holdfast.server.operating.census import Census
from holdfast.server.operating.logs import ServerLog
from holdfast.server.operating.metrics import Metrics
from holdfast.server.operating.readiness import Readiness
from holdfast.server.routes import HISTORY, match
from holdfast.server.routes.route import Route
from holdfast.server.settings import ServerSettings
from holdfast.server.shapes import read_body
from holdfast.server.streams.feed import EventHub
from holdfast.server.streams.signalling import SignalStreams
from holdfast.server.streams.sse import Heartbeats
from holdfast.server.streams.waiting import Waiting

Handler = Callable[[Call], Awaitable[Response | Stream]]
JSON = "application/json"
UNKNOWN = "(none)"  # the route of what has none
FAILED = "the server has failed; its log says more under {}"
DRAINING = "the server is going away; ask again with the same attempt"


class App:
    """See the module. It makes the parts that answer, and ends them."""

    def __init__(
        self,
        settings: ServerSettings,
        backend: Backend,
        metrics: Metrics,
        log: ServerLog,
        *,
        required: bool = False,
    ) -> None:
        self._settings = settings
        self._metrics = metrics
        self._log = log
        self._access = Access(backend, settings)
        self._access.required = self._access.required or required
        self._budget = Budget(settings.limits)
        self._heartbeats = Heartbeats()
        self._waiting = Waiting(backend, heartbeats=self._heartbeats)
        self._events = EventHub(backend, settings.limits, heartbeats=self._heartbeats)
        self._signals = SignalStreams(backend, heartbeats=self._heartbeats)
        metrics.streams.ask(lambda: self._events.count, "events")
        metrics.streams.ask(lambda: self._signals.count, "signals")
        metrics.events_sent.ask(lambda: self._events.sent)
        metrics.signals_sent.ask(lambda: self._signals.sent)
        metrics.waiters.ask(lambda: self._waiting.count)
        metrics.leases.ask(lambda: self._budget.total("leases"))
        metrics.queue_places.ask(lambda: self._budget.total("tickets"))
        acting = Acting(backend, self._waiting, self._budget)
        for end in (self._events.revoke, self._signals.revoke, self._waiting.revoke):
            self._access.on_revoked(end)
        membership = Membership(backend, self._budget)
        working = Working(backend, self._budget)
        looking = Looking(backend, self._events, self._signals, self._budget)
        self._readiness = Readiness(backend, log)
        standing = self._standing = Standing(
            settings, backend, self._access, metrics, Census(backend, metrics), self._readiness
        )
        self._handlers: dict[str, Handler] = {
            "acquire": acting.acquire,
            "release": acting.release,
            "withdraw": acting.withdraw,
            "downgrade": acting.downgrade,
            "renew": acting.renew,
            "break": acting.break_,
            "resize": acting.resize,
            "sweep": acting.sweep,
            "list": looking.list,
            "inspect": looking.inspect,
            "history": looking.history,
            "events": looking.events,
            "signals": looking.signals,
            "join": membership.join,
            "heartbeat": membership.heartbeat,
            "leave": membership.leave,
            "claim": membership.claim,
            "instances": membership.instances,
            "offer": working.offer,
            "assign": working.assign,
            "finish": working.finish,
            "forget": working.forget,
            "inspect_work": working.inspect,
            "list_work": working.list,
            "count_work": working.count,
            "clients": looking.clients,
            "server": standing.server,
            "list_access": standing.list_access,
            "grant_access": standing.grant_access,
            "revoke_access": standing.revoke_access,
            "metrics": standing.metrics,
            "health": standing.health,
            "ready": standing.ready,
            "openapi": standing.openapi,
            "dashboard": standing.dashboard,
            "asset": standing.asset,
        }

    async def open(self) -> None:
        """Learn who may ask."""
        await self._access.open()

    async def reload(self) -> None:
        """Learn anew who may ask."""
        await self._access.reload()

    def drain(self) -> None:
        """Tell everybody who waits or listens to go elsewhere. Nothing is lost: it is all in the store."""
        self._standing.draining = True
        self._waiting.drain()
        self._events.drain()
        self._signals.drain()

    async def close(self) -> None:
        """End what runs by itself."""
        await self._waiting.close()
        self._events.close()
        self._heartbeats.close()
        await self._access.close()
        await self._readiness.close()

    async def handle(self, request: HTTPRequest) -> Response | Stream:
        """Answer *request*. Never raises but for cancellation: whatever happens is counted and logged."""
        began = time.perf_counter()
        path, named, who, failed, known = UNKNOWN, "", "", "", False
        try:
            try:
                route, named = match(request.method, request.path)
                path = route.path
                principal = ANYONE if route.public else await self._access.authenticate(request)
                who = principal.name
                if not route.public:
                    known = True
                    request.let_in()
                self._admit(route, principal)
                response = await self._handlers[route.name](self._read(request, route, named, principal))
            except errors.HoldfastError as error:
                failed = type(error).__name__
                response = self._refuse(request, error, known=known)
        except Exception as error:  # noqa: BLE001 - whatever it is, the caller gets an answer and the log the reason
            failed = type(error).__name__
            log().exception("request %s: %s %s has failed", request.id, request.method, path)
            response = refused(errors.StoreError(FAILED.format(request.id)))
        took = time.perf_counter() - began
        status = response.status if isinstance(response, Response) else 200
        self._metrics.observe_request(path, request.method, status, took)
        self._log.request(
            id=request.id,
            method=request.method,
            route=path,
            status=status,
            seconds=took,
            principal=who,
            remote=request.remote,
            key=named,
            error=failed,
            known=known,
        )
        return response

    def _refuse(self, request: HTTPRequest, error: errors.HoldfastError, *, known: bool) -> Response:
        """Return the answer that says why not. What only the log may tell is told there."""
        self._count(error)
        told = outward(error)
        if told is not error:
            text = f"request {request.id}: {error}"
            if known:
                self._log.say(text, "warning")
            else:
                self._log.seldom("the store fails for callers not let in", text, "warning")
        return refused(told)

    def _admit(self, route: Route, principal: Principal) -> None:
        """Refuse who may not ask for anything of this kind, or has asked too much."""
        if route.public:
            return
        self._budget.asked(principal)
        verb = route.verb
        if verb is not None and route.scope in ("visible", "anything") and not principal.any(verb):
            raise errors.AccessDenied(f"{principal.name} has no right to {verb} anything")
        if verb is not None and route.scope == "everywhere" and not principal.everywhere(verb):
            raise errors.AccessDenied(f"{principal.name} has no right to {verb} everything ({verb}:*)")
        if self._standing.draining and route.streams:
            raise errors.StoreUnavailable(DRAINING)

    def _read(self, request: HTTPRequest, route: Route, named: str, principal: Principal) -> Call:
        """Return what is asked for, checked."""
        given: dict[str, Any] = {}
        call = Call(request, route, named, given, principal, self._history(request, principal))
        if route.verb is not None and route.scope == "key":
            call.require(route.verb, named)
        if route.verb is not None and named and route.scope in ("instance", "types"):
            call.require(route.verb, instance_key(scoped(principal, named)))
        if route.body is not None:
            if request.query:
                route.query.read_query(request.query)  # there must be none
            if not _is_json(request):
                raise errors.RequestRefused(415, "a body must have the Content-Type application/json")
            given.update(read_body(route.body, request.body))
        else:
            given.update(route.query.read_query(request.query))
        if given.get("now") is not None and not self._settings.accept_times:
            raise errors.SettingsError(
                "now is for tests of the server itself; here its store's clock decides"
            )
        return call

    def _history(self, request: HTTPRequest, principal: Principal) -> Any:
        """Return how much is to be kept of it. A row for each grant is not for everybody to ask for."""
        asked = request.headers.get("holdfast-history")
        if asked is None:
            return None
        level = HISTORY.read(asked, "Holdfast-History")
        settings = self._settings
        most = max(settings.history, settings.most_history, key=HISTORY_LEVELS.index)
        if HISTORY_LEVELS.index(level) > HISTORY_LEVELS.index(most) and not principal.everywhere("admin"):
            raise errors.AccessDenied(
                f"{principal.name} may have the history {most!r} kept at most, not {level!r}: ask for less"
                " (the client's setting history), or have the server's most_history raised"
            )
        return level

    def _count(self, error: errors.HoldfastError) -> None:
        if isinstance(error, errors.NotAuthenticated):
            self._metrics.auth_failures.add()
        elif isinstance(error, errors.AccessDenied):
            self._metrics.access_denied.add()
        elif isinstance(error, errors.LimitExceeded):
            self._metrics.limits_hit.add(error.limit)
        elif isinstance(error, errors.TooManyRequests):
            self._metrics.limits_hit.add("rate")


def _is_json(request: HTTPRequest) -> bool:
    given = request.headers.get("content-type", "")
    return given == JSON or given.partition(";")[0].strip().lower() == JSON

"""One request, from its arrival to its answer: who asks, whether they may, and what comes of it.

Whatever goes wrong becomes a problem with a status, a name and what to do. How a request is answered is in
`locks`, `work` and `system`.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from holdfast import errors
from holdfast.core.cluster import instance_key
from holdfast.core.events import HISTORY_LEVELS
from holdfast.core.requests import Signal
from holdfast.core.wire import ROUTES, Route
from holdfast.core.wire.fields import read_body
from holdfast.core.wire.shapes import OneOf
from holdfast.log import log
from holdfast.server.admission.access import ANYONE, Access, Principal, scoped
from holdfast.server.admission.limits import Budget
from holdfast.server.backend import Backend
from holdfast.server.call import Call
from holdfast.server.exchange import Exchange, Visit
from holdfast.server.http import sse
from holdfast.server.http.message import HTTPRequest, Later, Response, Stream
from holdfast.server.locks import changes, views, waits
from holdfast.server.locks.plain import Plain, PlainAcquire, PlainRelease
from holdfast.server.replies import outward, refused, settled
from holdfast.server.router import match
from holdfast.server.settings import ServerSettings
from holdfast.server.streams import feed, signals
from holdfast.server.system import handlers, readiness
from holdfast.server.system.logs import ServerLog
from holdfast.server.system.metrics import Metrics
from holdfast.server.work.handlers import WorkHandlers

Handler = Callable[[Call], Awaitable[Response | Stream]]
R = TypeVar("R", bound=Response | Stream)
JSON = "application/json"
HISTORY = OneOf(HISTORY_LEVELS)
FAILED = "the server has failed; its log says more under {}"


class App:
    """See the module. It makes the parts that answer, and ends them."""

    def __init__(
        self, settings: ServerSettings, backend: Backend, metrics: Metrics, log: ServerLog, *, required: bool
    ) -> None:
        self._settings = settings
        self._backend = backend
        self._metrics = metrics
        self._log = log
        self.access = Access(backend, settings)  # to be opened
        self.access.required = self.access.required or required
        self._budget = Budget(settings.limits)
        self._heartbeats = sse.Heartbeats()
        self._waits = waits.Waits(backend, heartbeats=self._heartbeats)
        self._events = feed.EventHub(backend, settings.limits, heartbeats=self._heartbeats)
        self._signals = signals.SignalStreams(backend, heartbeats=self._heartbeats, may_enter=self._may_enter)
        metrics.streams.ask(lambda: self._events.count, "events")
        metrics.streams.ask(lambda: self._signals.count, "signals")
        metrics.events_sent.ask(lambda: self._events.sent)
        metrics.signals_sent.ask(lambda: self._signals.sent)
        metrics.waiters.ask(lambda: self._waits.count)
        metrics.leases.ask(lambda: self._budget.total("leases"))
        metrics.queue_places.ask(lambda: self._budget.total("tickets"))
        for end in (self._events.revoke, self._signals.revoke, self._waits.revoke):
            self.access.on_revoked(end)
        self._readiness = readiness.Readiness(backend, log)
        self._system = handlers.SystemHandlers(
            settings, backend, self.access, self._signals, metrics, self._readiness
        )
        locks = changes.LockChanges(backend, self._waits, self._budget)
        self._plain: dict[str, Plain] = {"acquire": PlainAcquire(locks), "release": PlainRelease(locks)}
        answering = (
            locks,
            views.LockViews(backend, self._events, self._signals, self._budget),
            WorkHandlers(backend, self._budget),
            self._system,
        )
        self._handlers = {route.name: self._handler(route, answering) for route in ROUTES}

    def _handler(self, route: Route, answering: tuple[object, ...]) -> Handler:
        """Return what answers *route*: a method of the same name, or whatever the store answers."""
        plain = self._ask_store if route.request is not None else None
        found = next((getattr(each, route.name) for each in answering if hasattr(each, route.name)), plain)
        assert found is not None, route.name
        return found

    def _may_enter(self, principal: Principal, signal: Signal) -> bool:
        """Tell whether a caller may enter by a hand-over, and count the lease: nobody asks for it again."""
        entered = self._budget.entered(principal, signal.key, signal.attempt, signal.expires_in)
        if entered:
            self._metrics.entered(signal.attempt)
        return entered

    async def _ask_store(self, call: Call) -> Response:
        request = call.request()
        return settled(request, await self._backend.ask(request, call.history))

    def drain(self) -> None:
        """Tell everybody who waits or listens to go elsewhere. Nothing is lost: it is all in the store."""
        self._system.draining = True
        self._waits.drain()
        self._events.drain()
        self._signals.drain()

    async def close(self) -> None:
        """End what runs by itself."""
        await self._waits.close()
        self._events.close()
        self._heartbeats.close()
        await self.access.close()
        await self._readiness.close()

    def handle(self, request: HTTPRequest) -> Coroutine[Any, Any, Response | Stream] | Later:
        """Begin to answer *request*, and return the rest. Never raises: all is counted and logged."""
        visit = Visit(request)
        try:
            route, visit.named = match(request.method, request.path)
            visit.path = route.path
            principal = ANYONE if route.public else self.access.recognise(request)
            if principal is None:
                return self._handle(visit, route)
            call = self._enter(visit, route, principal)
            plain = self._plain.get(route.name)
            if plain is not None and (asked := plain.begin(call)) is not None:
                return Exchange(self, self._backend, visit, call, plain, asked)
        except Exception as error:  # noqa: BLE001 - see `explain`
            return _known(self.conclude(visit, self.explain(visit, error)))
        return self._handle(visit, route, call)

    async def _handle(self, visit: Visit, route: Route, call: Call | None = None) -> Response | Stream:
        """Do what may take a while: look up who asks, and whatever a handler does."""
        response: Response | Stream
        try:
            if call is None:
                call = self._enter(visit, route, await self.access.authenticate(visit.request))
            response = await self._handlers[route.name](call)
        except Exception as error:  # noqa: BLE001 - see `explain`
            response = self.explain(visit, error)
        return self.conclude(visit, response)

    def _enter(self, visit: Visit, route: Route, principal: Principal) -> Call:
        """Let somebody in, and return what is asked for, checked."""
        visit.who = principal.name
        if not route.public:
            visit.known = True
            visit.request.let_in()
        self._admit(route, principal)
        return self._read(visit.request, route, visit.named, principal)

    def explain(self, visit: Visit, error: Exception) -> Response:
        """Return the answer for *error*. Whatever it is, the caller gets one, and the log the reason."""
        request, visit.failed = visit.request, type(error).__name__
        if isinstance(error, errors.HoldfastError):
            try:
                return self._refuse(request, error, known=visit.known)
            except Exception as mistake:  # noqa: BLE001 - as said
                error, visit.failed = mistake, type(mistake).__name__
        log().error("request %s: %s %s has failed", request.id, request.method, visit.path, exc_info=error)
        return refused(errors.StoreError(FAILED.format(request.id)))

    def conclude(self, visit: Visit, response: R) -> R:
        """Count and log an answer."""
        request = visit.request
        took = time.perf_counter() - visit.began
        status = response.status if isinstance(response, Response) else 200
        self._metrics.observe_request(visit.path, request.method, status, took)
        self._log.request(
            id=request.id,
            method=request.method,
            route=visit.path,
            status=status,
            seconds=took,
            principal=visit.who,
            remote=request.remote,
            key=visit.named,
            error=visit.failed,
            known=visit.known,
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
        if self._system.draining and route.streams:
            raise errors.StoreUnavailable(waits.GOING_AWAY)

    def _read(self, request: HTTPRequest, route: Route, named: str, principal: Principal) -> Call:
        """Return what is asked for, checked."""
        history = self._history(request, principal) if "holdfast-history" in request.headers else None
        if route.verb is not None and route.scope == "key":
            principal.require(route.verb, named)
        elif route.verb is not None and named and route.scope in ("instance", "types"):
            principal.require(route.verb, instance_key(scoped(principal, named)))
        if route.body is not None:
            if request.query:
                route.query.read_query(request.query)  # there must be none
            if not _is_json(request):
                raise errors.RequestRefused(415, "a body must have the Content-Type application/json")
            given = read_body(route.body, request.body)
        else:
            given = route.query.read_query(request.query)
        if given.get("now") is not None and not self._settings.accept_times:
            raise errors.SettingsError(
                "now is for tests of the server itself; here its store's clock decides"
            )
        return Call(request, route, named, given, principal, history)

    def _history(self, request: HTTPRequest, principal: Principal) -> Any:
        """Return how much is to be kept of it. A row for each grant is not for everybody to ask for."""
        level = HISTORY.read(request.headers["holdfast-history"], "Holdfast-History")
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


async def _known(response: Response) -> Response:
    return response


def _is_json(request: HTTPRequest) -> bool:
    given = request.headers.get("content-type", "")
    return given == JSON or given.partition(";")[0].strip().lower() == JSON

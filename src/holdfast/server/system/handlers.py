"""Handlers of the server itself: what it is, whether it is well, who may use it, and its dashboard."""

from __future__ import annotations

import asyncio
import hashlib
import mimetypes
import time
from importlib import resources
from typing import Any

from holdfast import __version__, errors
from holdfast.core.access import new_right
from holdfast.core.data import as_dict
from holdfast.server.admission.access import Access
from holdfast.server.backend import Backend
from holdfast.server.call import Call
from holdfast.server.http.message import Response
from holdfast.server.openapi import describe
from holdfast.server.replies import answered, listed, missing, to_bytes
from holdfast.server.settings import ServerSettings
from holdfast.server.streams.signals import SignalStreams
from holdfast.server.system.census import Census
from holdfast.server.system.metrics import CONTENT_TYPE, Metrics
from holdfast.server.system.readiness import Readiness

# The page runs nothing, shows nothing and talks to nobody but what this server sends.
_SOURCES = "default-src 'self'; img-src 'self' data:"
POLICY = f"{_SOURCES}; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
PAGE_HEADERS = (
    ("Content-Security-Policy", POLICY),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
)


class SystemHandlers:
    """See the module."""

    def __init__(
        self,
        settings: ServerSettings,
        backend: Backend,
        access: Access,
        signals: SignalStreams,
        metrics: Metrics,
        readiness: Readiness,
    ) -> None:
        self._settings = settings
        self._backend = backend
        self._access = access
        self._signals = signals
        self._metrics = metrics
        self._census = Census(backend, metrics)
        self._readiness = readiness
        self._openapi = {asks: to_bytes(describe(authentication=asks)) for asks in (False, True)}
        self._files = _load_files()
        self.draining = False

    async def server(self, call: Call) -> Response:
        """Say what this server is, and who asks."""
        traits = self._backend.traits
        principal = call.principal
        body: dict[str, Any] = {
            "answer": "server",
            "version": __version__,
            "instance": self._backend.instance,
            "store": {
                "kind": self._backend.kind,
                "durable": traits.durable,
                "signals": traits.signals,
                "tells_watchers": traits.tells_watchers,
            },
            "authentication": self._access.required,
            "principal": {"name": principal.name, "rights": [str(right) for right in principal.rights]},
            "history": self._settings.history,
            "limits": as_dict(self._settings.limits),
            "time": time.time(),
            "draining": self.draining,
        }
        return Response(200, to_bytes(body))

    async def clients(self, call: Call) -> Response:
        """See who is connected: all, or only those of the same principal."""
        everyone = call.principal.everywhere("admin")
        items: tuple[Any, ...] = tuple(
            each for each in self._signals.listing() if everyone or each["principal"] == call.principal.name
        )
        return await listed("clients", items)

    async def health(self, call: Call) -> Response:
        """Say that we are alive: who can be asked is."""
        return Response(200, to_bytes({"answer": "health", "status": "alive"}))

    async def ready(self, call: Call) -> Response:
        """Say whether locks can be taken here."""
        if self.draining:
            return _not_ready("the server is going away")
        if trouble := await self._readiness.look():
            return _not_ready(trouble)
        return Response(200, to_bytes({"answer": "health", "status": "ready"}))

    async def metrics(self, call: Call) -> Response:
        """Return all figures."""
        trouble, _ = await asyncio.gather(self._readiness.look(), self._census.take())
        self._metrics.ready.set(0 if self.draining or trouble else 1)
        return Response(200, self._metrics.render(), CONTENT_TYPE)

    async def openapi(self, call: Call) -> Response:
        """Return the description of all this."""
        return Response(200, self._openapi[self._access.required])

    async def dashboard(self, call: Call) -> Response:
        """Return the page."""
        return self._file(call, "index.html")

    async def asset(self, call: Call) -> Response:
        """Return a part of the page."""
        return self._file(call, call.named)

    def _file(self, call: Call, name: str) -> Response:
        found = self._files.get(name)
        if found is None:
            raise errors.RequestRefused(404, f"the dashboard has no {name[:100]!r}")
        content, kind, tag = found
        headers = (*PAGE_HEADERS, ("Cache-Control", "no-cache"), ("ETag", tag))
        if call.http.headers.get("if-none-match") == tag:
            return Response(304, b"", kind, headers)
        return Response(200, content, kind, headers)

    # Who may use it.

    async def list_access(self, call: Call) -> Response:
        """Return all access tokens; of their secrets only hashes exist."""
        return await listed("access_tokens", await self._backend.ask(call.request()))

    async def grant_access(self, call: Call) -> Response:
        """Keep a new access token."""
        for right in call.given["rights"]:
            new_right(right)
        answer = await self._backend.ask(call.request())
        await self._access.reload()
        return answered(answer)

    async def revoke_access(self, call: Call) -> Response:
        """Forget an access token."""
        answer = await self._backend.ask(call.request())
        await self._access.reload()
        return answered(answer) if answer else missing(f"there is no access token {call.named[:60]!r}")


def _not_ready(why: str) -> Response:
    body = to_bytes({"answer": "health", "status": "not ready", "detail": why})
    return Response(503, body, headers=(("Retry-After", "1"),))


def _load_files() -> dict[str, tuple[bytes, str, str]]:
    """Return the dashboard's files: content, type, and what tells one release's from another's."""
    root = resources.files("holdfast.server").joinpath("dashboard")
    found = {}
    for folder in ("", "lib", "views"):
        for file in root.joinpath(folder).iterdir():
            if file.is_file() and not file.name.startswith((".", "__")):
                content = file.read_bytes()
                kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
                if kind.startswith("text/"):
                    kind = f"{kind}; charset=utf-8"
                name = f"{folder}/{file.name}" if folder else file.name
                found[name] = content, kind, f'"{hashlib.sha256(content).hexdigest()[:16]}"'
    return found

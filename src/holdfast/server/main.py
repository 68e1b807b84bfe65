"""A server's life: it opens its store, looks whether it is safe to listen, serves, and ends without a loss.

`Server` can be started and stopped inside another program; `run` is the whole life of a process, with its
signals: TERM and INT drain, a second one ends at once, HUP reads certificates and access tokens again.
"""

from __future__ import annotations

import asyncio
import errno
import os
import random
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from holdfast import errors
from holdfast.core.access import ListAccess
from holdfast.core.requests import Sweep
from holdfast.server.admission.safety import Safety, check, store_url
from holdfast.server.settings import LogLevel, ServerSettings
from holdfast.server.system.logs import ServerLog
from holdfast.server.system.metrics import CUTS, Metrics
from holdfast.stores import shown

if TYPE_CHECKING:
    from holdfast.server.app import App
    from holdfast.server.backend import Backend
    from holdfast.server.http.door import Cut
    from holdfast.server.http.listener import Listener
    from holdfast.server.http.tls import ServerContext

SWEPT_AT_ONCE = 200  # keys: whoever asks meanwhile waits for one such step at most
AT_ONCE = 1.0  # seconds, for who wants it to end at once
_CUT: dict[Cut, tuple[LogLevel, str]] = {
    "strangers": (
        "warning",
        "an address has as many connections without a valid access token as it may (limits.strangers)",
    ),
    "full": ("warning", "there are as many connections as there may be (limits.connections, open files)"),
    "refused": ("warning", "a connection was refused"),
    "handshake": ("info", "a TLS handshake was not done"),
    "unheard": ("info", "a request was refused before it was complete"),
}
SPARE_FILES = 200  # beside connections: the store's, the log, libraries


class Server:
    """A lock server. `start` and `stop` it, or use it as a context manager."""

    def __init__(self, settings: ServerSettings, *, log: ServerLog | None = None) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.log = log or ServerLog(settings.log_format, settings.log_level)
        self.safety = Safety(authentication=True, warnings=())
        self.url = ""  # once it listens
        self.store = ""  # for people's eyes
        self._backend: Backend | None = None
        self._app: App | None = None
        self._listener: Listener | None = None
        self._tls: ServerContext | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def __repr__(self) -> str:
        return f"<Server {self.url or 'that does not listen'} on {self.store or 'no store'}>"

    async def start(self) -> str:
        """Open the store and listen; return the url. Raise if that is not safe, or not possible."""
        try:
            return await self._start()
        except BaseException:
            await self.stop(drain=0.0)
            raise

    async def _start(self) -> str:
        settings = self.settings
        _need_httptools()
        from holdfast.server.app import App
        from holdfast.server.backend import Backend
        from holdfast.server.http.listener import Listener

        url = store_url(settings)
        self.store = shown(url.removesuffix("synchronous=full").rstrip("?&"))
        if settings.tls_cert:
            from holdfast.server.http.tls import make_context

            self._tls = make_context(settings.tls_cert, settings.tls_key, settings.tls_client_ca or None)
        backend = self._backend = Backend(url, history=settings.history, observer=self.metrics)
        await backend.open(settings.wait_for_store)
        self.safety = check(settings, tokens=bool(await backend.ask(ListAccess())))
        app = self._app = App(settings, backend, self.metrics, self.log, required=self.safety.authentication)
        await app.access.open()
        listener = Listener(app.handle, settings.limits, on_drain=app.drain, on_cut=self._cut)
        try:
            port = await listener.start(settings.host, settings.port, self._tls)
        except OSError as error:
            raise errors.SettingsError(_cannot_listen(settings, error)) from error
        self._listener = listener
        self._count(backend, listener)
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        self.url = f"http{'s' if self._tls else ''}://{host}:{port}"
        if settings.sweep_every:
            self._tasks.append(asyncio.create_task(self._sweep(backend), name="holdfast-sweep"))
        return self.url

    def _count(self, backend: Backend, listener: Listener) -> None:
        """Let the metrics ask for what is counted elsewhere."""
        self.metrics.connections.ask(lambda: len(listener.connections))
        self.metrics.strangers.ask(lambda: len(listener.strangers))
        self.metrics.store_pending.ask(lambda: backend.pending)
        self.metrics.slow_readers.ask(lambda: listener.dropped)
        self.metrics.unheard.ask(lambda: sum(listener.refused.values()))

    def _cut(self, why: Cut, remote: str, detail: str) -> None:
        """Take note of a connection that is not served: all are counted, and some are logged."""
        if why in CUTS:
            self.metrics.connections_cut.add(why)
        level, text = _CUT[why]
        self.log.seldom(text, f"{text}: {detail}", level, remote=remote)

    async def stop(self, drain: float | None = None) -> None:
        """Take nothing new, tell who waits to come back, let what is under way finish; then let go of all."""
        while self._tasks:
            task = self._tasks.pop()
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        if self._listener is not None:
            self.metrics.draining.set(1)
            await self._listener.drain(self.settings.drain if drain is None else drain)
            self._listener = None
        if self._app is not None:
            await self._app.close()
            self._app = None
        if self._backend is not None:
            await self._backend.close()
            self._backend = None
        self.url = ""

    async def reload(self) -> None:
        """Read certificates and access tokens again. What cannot be read leaves the old in place."""
        try:
            if self._tls is not None:
                self._tls.reload()
            if self._app is not None:
                await self._app.access.reload()
        except (errors.HoldfastError, OSError) as error:
            self.log.say(f"not reloaded: {error}", "error")
        else:
            self.log.say("certificates and access tokens were read anew")

    async def __aenter__(self) -> Server:
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stop()

    async def run(self, greet: Callable[[], None] = lambda: None) -> None:
        """Serve until a signal says that it is over. It must have been started.

        *greet* is called when signals are heard: whoever is told that we serve may send one.
        """
        loop = asyncio.get_running_loop()
        over, at_once = asyncio.Event(), asyncio.Event()

        def end() -> None:
            (at_once if over.is_set() else over).set()

        reloads: set[asyncio.Task[None]] = set()

        def reload() -> None:
            notify("RELOADING=1")
            task = loop.create_task(self.reload())
            reloads.add(task)
            task.add_done_callback(reloads.discard)
            task.add_done_callback(lambda _: notify("READY=1"))

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, end)
        if hasattr(signal, "SIGHUP"):
            loop.add_signal_handler(signal.SIGHUP, reload)
        greet()
        notify("READY=1")
        await over.wait()
        notify("STOPPING=1")
        self.log.say("ending: no new requests; those under way finish")
        stopping = loop.create_task(self.stop())
        ended = loop.create_task(at_once.wait())
        await asyncio.wait({stopping, ended}, return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        if not stopping.done():
            self.log.say("ending at once: a second signal came", "warning")
            stopping.cancel()
            with suppress(asyncio.CancelledError):
                await stopping
            try:
                async with asyncio.timeout(AT_ONCE):
                    await self.stop(drain=0.0)
            except TimeoutError:  # the store hangs, and its threads would keep us for as long as it does
                self.log.say("ended, while the store was still asked", "warning")
                os._exit(1)
        else:
            await stopping
        self.log.say("ended")

    async def _sweep(self, backend: Backend) -> None:
        """Tidy the store now and then, in small steps, and not at the same time as other servers on it."""
        while True:
            await asyncio.sleep(self.settings.sweep_every * random.uniform(0.75, 1.25))
            after: str | None = ""
            try:
                while after is not None:
                    swept = await backend.ask(Sweep(limit=SWEPT_AT_ONCE, after=after))
                    after = swept.after
                    await asyncio.sleep(0.02)  # others first
            except errors.StoreError as error:
                self.log.say(f"the store could not be swept: {error}", "warning")


def make_room(settings: ServerSettings) -> str:
    """Let this process have as many connections as the settings say; return a warning if it may not."""
    try:
        import resource  # not everywhere
    except ImportError:
        return ""
    wanted = settings.limits.connections + SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        with suppress(OSError, ValueError):  # where even that is forbidden
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    if most < wanted:
        return (
            f"this process may open {hard} files, too few for {settings.limits.connections} connections:"
            " raise it (ulimit -n, LimitNOFILE=), or lower limits.connections"
        )
    return ""


def notify(state: str) -> None:
    """Tell systemd how we are, such as ``READY=1``, if it started us and wants to know (``Type=notify``)."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path.startswith(("/", "@")):
        return
    address = f"\0{path[1:]}" if path.startswith("@") else path
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(state.encode(), address)


def _need_httptools() -> None:
    try:
        import httptools  # noqa: F401
    except ImportError as error:
        raise errors.StoreMisconfigured("a server needs httptools: pip install 'holdfast[server]'") from error


def _cannot_listen(settings: ServerSettings, error: OSError) -> str:
    where = f"port {settings.port} of {settings.host}"
    if error.errno == errno.EADDRINUSE:
        return f"{where} is in use: does a server run there already? Choose another with --port, 0 for any"
    if error.errno == errno.EACCES:
        return f"{where} may only be used by root: choose one above 1023 with --port"
    return f"cannot listen on {where}: {error.strerror or error}"

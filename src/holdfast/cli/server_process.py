"""The life of a process that serves: its log, its event loop, and what it says to whoever started it."""

from __future__ import annotations

import asyncio
import os
import re
import socket
from collections.abc import Callable

from holdfast import __version__
from holdfast.cli.interrupts import Interrupts
from holdfast.cli.output import BOLD, YELLOW, clean, paint
from holdfast.server.main import Server, make_room
from holdfast.server.settings import ServerSettings
from holdfast.server.system.logs import ServerLog


def serve(settings: ServerSettings, ready: Callable[[Server], None] | None = None) -> None:
    """Run a server until a signal ends it; call *ready* once it listens."""
    log = ServerLog(settings.log_format, settings.log_level)
    too_few = make_room(settings)

    async def live() -> None:
        server = Server(settings, log=log)
        await server.start()

        def tell() -> None:
            for warning in (too_few, *server.safety.warnings):
                if warning:
                    log.say(warning, "warning")
            greet(server)
            if ready is not None:
                ready(server)

        await server.run(tell)

    log.install()
    try:
        # Until the server hears signals itself: as process 1 of a container we would not end by them.
        with Interrupts(), asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(live())
    finally:
        log.close()


def greet(server: Server) -> None:
    """Say where to look."""
    settings, authentication = server.settings, server.safety.authentication
    if settings.log_format == "json":
        server.log.say(
            "serving",
            version=__version__,
            url=server.url,
            store=server.store,
            authentication=authentication,
            pid=os.getpid(),
        )
        return
    who = (
        "on: callers need an access token (holdfast token create NAME --allow RIGHT)"
        if authentication
        else "off: everybody who can reach it may do everything"
    )
    print(f"holdfast {__version__} serves {paint(server.url, BOLD)}")
    # "All addresses" is none that a browser could open.
    at = re.sub(r"//(0\.0\.0\.0|\[::\]):", f"//{socket.gethostname()}:", server.url)
    print(f"  dashboard       {paint(f'{at}/', BOLD)}")
    print(f"  store           {clean(server.store)}")
    print(f"  authentication  {who if authentication else paint(who, YELLOW)}")
    print("  Ctrl-C ends it", flush=True)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return how to make a faster event loop, if there is one."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop

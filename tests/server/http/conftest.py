from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast.server.settings import Limits
from tests.server.http.support import Site

Serve = Callable[..., Site]


@pytest.fixture(params=["asyncio", "uvloop"])
def serve(request: pytest.FixtureRequest) -> Iterator[Serve]:
    """Make listeners with some limits, on both kinds of event loop."""
    sites: list[Site] = []

    def make(
        context: ssl.SSLContext | None = None, options: dict[str, Any] | None = None, **limits: Any
    ) -> Site:
        sites.append(Site(request.param, Limits(**limits), context, **(options or {})))
        return sites[-1]

    yield make
    for site in sites:
        site.stop()


@pytest.fixture
def site(serve: Serve) -> Site:
    """A listener with the usual limits."""
    return serve()

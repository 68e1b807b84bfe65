"""Keep other people's web pages out of a server that asks nobody who they are.

Every page that its user opens can send requests to a server on the same machine. It cannot read the answers,
but breaking a lock needs none. Where access tokens are needed no page has one, so all this is not needed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from holdfast.errors import AccessDenied
from holdfast.server.admission.safety import is_loopback

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^:\[\]]+)(:[0-9]{1,5})?", re.IGNORECASE)
_FOREIGN = frozenset({"cross-site", "same-site"})  # another port of this machine is another site, too


def refuse_other_sites(headers: Mapping[str, str], *, here: bool) -> None:
    """Raise `AccessDenied` if the request comes from a page that is not ours.

    *here* tells that the server is for this machine alone. Then it must also be called so: a page can give
    its own name the address 127.0.0.1, and is of the same origin then as far as a browser can tell.
    """
    host = headers.get("host", "").lower()
    if here and not _is_this_machine(host):
        raise AccessDenied(
            f"{host[:100]!r} is no name of this machine. Without access tokens only localhost is served:"
            " make one with 'holdfast token create', or see --insecure-no-authentication"
        )
    origin = headers.get("origin")
    if origin is not None and origin.lower().partition("://")[2] != host:
        raise AccessDenied(f"a page of {origin[:100]!r} may not use this server; only its own dashboard may")
    if headers.get("sec-fetch-site", "").lower() in _FOREIGN:
        raise AccessDenied("a page of another site may not use this server; only its own dashboard may")


@lru_cache(maxsize=64)  # nearly all requests have the same
def _is_this_machine(host: str) -> bool:
    found = _HOST.fullmatch(host)
    return found is not None and (found[1] == "localhost" or is_loopback(found[1]))

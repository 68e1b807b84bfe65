"""What is checked before a server listens: who could reach it, and what it would promise them."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Callable

from holdfast.core.data import data
from holdfast.errors import SettingsError
from holdfast.server.settings import ServerSettings
from holdfast.stores import address_of, default_url


@data
class Safety:
    """Whether callers have to say who they are, and what somebody should know."""

    authentication: bool
    warnings: tuple[str, ...]


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach *host*. A name that could be anybody's is not."""
    if host.lower() == "localhost":
        return _resolves_to_loopback(host)
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _resolves_to_loopback(host: str) -> bool:
    """Tell whether all addresses of a name are this machine's own: a file of hosts can say anything."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        return all(ipaddress.ip_address(str(each[4][0]).partition("%")[0]).is_loopback for each in found)
    except (OSError, ValueError):
        return False


def check(settings: ServerSettings, *, tokens: bool) -> Safety:
    """Decide whether callers have to say who they are, and refuse to serve other machines if they need not.

    *tokens* tells whether the store has any access token.
    """
    warnings = []
    here = is_loopback(settings.host)
    if settings.insecure_no_authentication:
        if not here:
            warnings.append(f"whoever can reach {settings.host} may take and break every lock")
        elif tokens:
            warnings.append("there are access tokens, and insecure_no_authentication ignores them")
        authentication = False
    else:
        authentication = settings.auth == "required" or tokens or not here
        if authentication and not tokens:
            if settings.auth != "required":
                raise SettingsError(
                    f"host {settings.host} can be reached by other machines, and there is no access token"
                    " yet. Make one with 'holdfast token create NAME --allow admin:*' on the same store,"
                    " or serve everybody with --insecure-no-authentication"
                )
            warnings.append(
                "there is no access token yet, so nobody may do anything:"
                " make one with 'holdfast token create NAME --allow admin:*' on the same store"
            )
    if not here and not settings.tls_cert:
        warnings.append(
            "without tls_cert and tls_key everything is sent in the clear:"
            " give both, or let a proxy on this machine or a network you trust do it"
        )
    return Safety(authentication, tuple(warnings))


def store_url(settings: ServerSettings, default: Callable[[], str] = default_url) -> str:
    """Return the url of the store to open, with what a server has to have.

    A grant that a server has answered must not be forgotten in a power cut, because its clients live on; so a
    file is written to the disk before each answer, unless the url says otherwise.
    """
    url: str = address_of(settings.url or default())
    scheme, _, rest = url.partition("://")
    scheme = scheme.lower()
    if scheme in ("http", "https"):
        raise SettingsError("a server cannot be the store of a server: give the url of its database")
    if scheme == "sqlite" and "synchronous=" not in rest.partition("?")[2]:
        return f"{url}{'&' if '?' in rest else '?'}synchronous=full"
    if scheme == "memory" and not rest:
        return f"memory://server-{os.urandom(8).hex()}"  # all connections of this server see the same locks
    return url

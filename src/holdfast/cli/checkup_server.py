"""What ``holdfast doctor`` looks at when the store is a lock server: the way there, and what one may."""

from __future__ import annotations

import json
import socket
import ssl
import time
from collections.abc import Iterator
from typing import Any

from holdfast import __version__, errors
from holdfast.cli.checkup import Checkup, Finding, failed
from holdfast.cli.output import count
from holdfast.core import wire
from holdfast.core.access import parse_right, prefixes
from holdfast.stores.http.connections import Connection
from holdfast.stores.http.options import read_url
from holdfast.stores.http.tls import TLS
from holdfast.stores.http.tokens import AccessTokens

SOON = 14 * 86400.0  # a certificate that ends earlier is worth a remark


class ServerCheckup:
    """Looks at a server, and then at the store behind it. *given*: the prefix was chosen by who asks."""

    def __init__(self, url: str, prefix: str, *, given: bool) -> None:
        self._url = url
        self._prefix = prefix
        self._given = given
        self._options, token = read_url(url)
        self._tokens = AccessTokens(token, self._options.token_file)
        self._tls = TLS(self._options) if self._options.secure else None

    def run(self) -> Iterator[Finding]:
        """Return the findings, as they are made."""
        try:
            yield self._security()
            yield self._ready()
            status, about = self._get("/v1/server")
        except errors.HoldfastError as error:
            yield failed("reach the server", error)
            return
        except OSError as error:  # nobody listens, or hangs up in the handshake
            text = f"cannot connect to {self._options}: {error.strerror or error}"
            yield failed("reach the server", errors.StoreUnavailable(text))
            return
        if status != 200:
            refusal = self._tokens.refused("401") if status == 401 else wire.error_from_json(status, about)
            yield failed("server", refusal)
            return
        yield self._version(about)
        yield self._authentication(about)
        prefix = self._choose(about["principal"]["rights"])
        if prefix is None:
            text = "not tried: the access token may acquire no prefix, only single keys or none"
            yield Finding("take and release", None, text)
            return
        yield from Checkup(self._url, prefix).run()

    def _security(self) -> Finding:
        options = self._options
        if self._tls is None:
            if options.is_local:
                return Finding("tls", True, "not needed: nothing leaves this machine")
            text = "http:// sends everything in the clear"
            return Finding("tls", None, text, "use https://, or trust the network")
        made = socket.create_connection((options.host, options.port), options.connect_timeout)
        with made, self._tls.wrap(made) as secured:
            certificate = secured.getpeercert() or {}
            version = secured.version()
        left = ssl.cert_time_to_seconds(str(certificate["notAfter"])) - time.time()
        text = f"{version}; the certificate is trusted, and valid for {count(int(left // 86400), 'day')}"
        return Finding("tls", True if left > SOON else None, text, "" if left > SOON else "renew it soon")

    def _ready(self) -> Finding:
        status, body = self._get("/readyz", ask_as_somebody=False)
        if status == 200:
            return Finding("ready", True, "the server answers, and its store can be written to")
        detail = str(body.get("detail") or f"it answers {status}")
        return Finding("ready", False, f"the server is not ready: {detail}", "see its log, or ask another")

    def _version(self, about: dict[str, Any]) -> Finding:
        store = about["store"]
        kept = "durable" if store["durable"] else "in memory, gone when it ends"
        text = f"release {about['version']}, its locks are in {store['kind']} ({kept})"
        if about["version"] == __version__:
            return Finding("server", True, text)
        return Finding("server", None, f"{text}; this is {__version__}", "use the same release on both sides")

    def _authentication(self, about: dict[str, Any]) -> Finding:
        if not about["authentication"]:
            good = True if self._options.is_local else None
            hint = "" if good else "make access tokens: holdfast token create NAME --allow RIGHT"
            return Finding("rights", good, "nobody is asked who they are: everybody may do everything", hint)
        principal = about["principal"]
        rights = ", ".join(principal["rights"])
        return Finding("rights", True, f"you are {principal['name']}, and may {rights}")

    def _choose(self, rights: list[str]) -> str | None:
        """Return how the probe's key has to begin for us to be allowed it."""
        ours = prefixes(map(parse_right, rights), "acquire")
        wide = [right.key for right in ours if right.prefix]
        if self._given or any(self._prefix.startswith(key) for key in wide):
            return self._prefix
        return f"{wide[0]}{self._prefix}" if wide else None

    def _get(self, path: str, *, ask_as_somebody: bool = True) -> tuple[int, dict[str, Any]]:
        options = self._options
        lines = [f"GET {options.prefix}{path} HTTP/1.1", f"Host: {options.address}"]
        lines.append("Accept: application/json")
        if ask_as_somebody and self._tokens.value:
            if not (options.secure or options.is_local or options.insecure):
                raise errors.SettingsError(
                    f"{options} is not https://: the access token is sent only with insecure=yes in the url"
                )
            lines.append(f"Authorization: Bearer {self._tokens.value}")
        connection = Connection(options, self._tls)
        try:
            reply = connection.ask("\r\n".join([*lines, "", ""]).encode("latin-1"))
        finally:
            connection.close()
        try:
            body = json.loads(reply.body or b"{}")
        except ValueError:
            body = None
        if not isinstance(body, dict):
            raise errors.StoreMisconfigured(f"{options} is no lock server: {path} is no JSON object there")
        return reply.head.status, body

"""The url of a lock server: where it is, and how to ask it. The access token in it is kept apart."""

from __future__ import annotations

import ipaddress
import math
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from holdfast.core.data import data
from holdfast.errors import SettingsError
from holdfast.stores.base import yes_or_no

_TLS_ONLY = ("ca", "cert", "key")


@data
class HTTPOptions:
    """Where a lock server is, and how to ask it. From *timeout* on, all can be given after ``?``."""

    secure: bool
    host: str
    port: int
    prefix: str = ""  # of all paths, where the server is not alone
    port_given: bool = True
    timeout: float = 10.0  # how long an answer may take before the connection is given up
    connect_timeout: float = 5.0
    pool_size: int = 8  # connections at most, and one to listen
    signals: bool = True
    repeats: bool = False  # a proxy in between may send a request twice
    insecure: bool = False  # an access token may be sent in clear text
    ca: str = ""  # a file: who signs the server's certificate
    cert: str = ""  # a file: our own certificate
    key: str = ""  # a file: its key, if that is not in the same
    token_file: str = ""

    @property
    def address(self) -> str:
        """Host and port, as a request names them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}" if self.port != _default_port(self.secure) else host

    def __str__(self) -> str:
        return f"http{'s' * self.secure}://{self.address}{self.prefix}"

    @property
    def is_local(self) -> bool:
        """Tell whether what is sent there stays on this machine."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def read_url(url: str) -> tuple[HTTPOptions, str]:
    """Return what *url* says, and the access token in it.

    What it complains about it names without showing it: there may be a token in it.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
        given = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError as error:
        such = "write it like https://locks.internal:7373"
        raise SettingsError(f"the url of the lock server cannot be read; {such}") from error
    secure = parts.scheme.lower() == "https"
    if not parts.hostname:
        raise SettingsError("the url of the lock server names no host; write it like http://localhost:7373")
    if parts.fragment or "#" in url:
        raise SettingsError("the url of the lock server has a '#'; write %23 where you mean the sign")
    if parts.username and not parts.password:
        raise SettingsError(
            "an access token is written as the password of the url, behind a colon: https://:hf_…@host"
        )
    options = HTTPOptions(
        secure,
        _host(parts.hostname),
        port or _default_port(secure),
        quote(parts.path.rstrip("/"), safe="/%:@!$&'()*+,;=~-._"),
        port is not None,
        **_read_options(given),
    )
    _check(options)
    return options, unquote(parts.password or "")


def _read_options(given: list[tuple[str, str]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    has = "the url of the lock server has"
    for name, text in given:
        read = _READ.get(name)
        if read is None:
            raise SettingsError(f"{has} the option {name!r}; there are {', '.join(_READ)}")
        if name in found:
            raise SettingsError(f"{has} the option {name!r} twice")
        try:
            found[name] = read(text)
        except (KeyError, ValueError) as error:
            place = f"{name} in the url of the lock server"
            raise SettingsError(f"{place} is {text!r}; {_WANTED[read]}") from error
    return found


def _check(options: HTTPOptions) -> None:
    if not options.secure and (given := [name for name in _TLS_ONLY if getattr(options, name)]):
        raise SettingsError(f"{given[0]} is for https://, and the url of the lock server is an http:// one")
    if options.secure and options.insecure:
        raise SettingsError(
            "insecure is for http://: over https:// certificates are always checked. Name the file of the"
            " authority that signed the server's with ca="
        )
    if options.key and not options.cert:
        raise SettingsError("key is the key of a certificate: name that too, with cert=")


def _default_port(secure: bool) -> int:
    return 443 if secure else 80


def _host(name: str) -> str:
    try:
        return name if name.isascii() else name.encode("idna").decode()
    except UnicodeError as error:
        raise SettingsError(f"{name!r} cannot be the name of a host") from error


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < math.inf:
        raise ValueError(text)
    return value


def _size(text: str) -> int:
    value = int(text)
    if not 1 <= value <= 1000:
        raise ValueError(text)
    return value


def _file(text: str) -> str:
    if not text:
        raise ValueError(text)
    return text


_READ = {
    **dict.fromkeys(("timeout", "connect_timeout"), _seconds),
    "pool_size": _size,
    **dict.fromkeys(("signals", "repeats", "insecure"), yes_or_no),
    **dict.fromkeys(("ca", "cert", "key", "token_file"), _file),
}
_WANTED = {
    _seconds: "it must be a number of seconds",
    _size: "it must be a whole number from 1 to 1000",
    yes_or_no: "it must be true or false",
    _file: "it must be the name of a file",
}

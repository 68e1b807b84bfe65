"""What a server is told: its store, its address, who may ask, and how much of everything.

Checked when it is made. Where the values come from (flags, environment, a file) is in `configuration`;
whether it is safe to listen with them, in `safety`.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

from holdfast.core.data import data
from holdfast.core.events import HISTORY_LEVELS, HistoryLevel
from holdfast.core.settings import MAX_TTL, seconds
from holdfast.errors import SettingsError

KIB, MIB = 1024, 1024 * 1024
PORT = 7373

Auth = Literal["auto", "required"]
LogFormat = Literal["text", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]

CHOICES: dict[str, tuple[str, ...]] = {
    "auth": get_args(Auth),
    "history": HISTORY_LEVELS,
    "most_history": HISTORY_LEVELS[1:],  # less would be nothing but what is always kept
    "log_format": get_args(LogFormat),
    "log_level": get_args(LogLevel),
}


def _count(value: object, name: str) -> int:
    if isinstance(value, float) and value.is_integer() and math.isfinite(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise SettingsError(f"{name} is {value!r}; it must be a whole number, not negative")
    return value


@data
class Limits:
    """How much of everything: of one principal, unless it says otherwise. 0 means none, but for *rate*."""

    body: int = MIB  # bytes of a request's body
    head: int = 16 * KIB  # bytes of its head
    head_time: float = 10.0  # seconds until its head is there
    body_time: float = 20.0  # and its body, from then on
    idle: float = 75.0  # how long a connection may be silent between two requests
    write_time: float = 10.0  # how long a peer may take to read an answer
    connections: int = 12_000  # of all together
    strangers: int = 3_000  # connections of one address on which nobody has shown a valid access token
    streams: int = 6_000  # event and signal streams
    waiters: int = 10_000  # acquires that the server waits for
    leases: int = 100_000
    keys: int = 100_000  # distinct ones within an hour
    instances: int = 10_000  # of a cluster
    shortest_ttl: float = 0.1
    longest_ttl: float = MAX_TTL
    longest_wait: float = 300.0  # of one acquire with a timeout
    rate: float = 20_000.0  # requests a second; 0: as many as they like
    slow_reader: int = 256 * KIB  # bytes that may wait for the reader of a stream

    def __post_init__(self) -> None:
        for name, kind in Limits.__annotations__.items():
            value = getattr(self, name)
            checked = _count(value, f"limits.{name}") if kind == "int" else seconds(value, f"limits.{name}")
            object.__setattr__(self, name, checked)
        needed = ("body", "head", "head_time", "body_time", "idle", "write_time", "connections", "strangers")
        for name in needed:
            if not getattr(self, name):
                raise SettingsError(f"limits.{name} is 0; nobody could ask for anything")
        if not 0 < self.shortest_ttl <= self.longest_ttl <= MAX_TTL:
            raise SettingsError(
                f"limits.shortest_ttl is {self.shortest_ttl:g} s and limits.longest_ttl is"
                f" {self.longest_ttl:g} s; both must be more than 0 and at most {MAX_TTL:g} s, the first not"
                " longer than the second"
            )


@data
class ServerSettings:
    """All that a server is told."""

    url: str = ""  # the store; empty: $HOLDFAST_URL, or a file of this user's
    host: str = "127.0.0.1"
    port: int = PORT  # 0: any that is free
    tls_cert: str = ""  # a file: the certificate, and whatever leads to its authority
    tls_key: str = ""
    tls_client_ca: str = ""  # a file: who signs the certificates that clients must have
    auth: Auth = "auto"
    insecure_no_authentication: bool = False
    history: HistoryLevel = "notable"
    most_history: HistoryLevel = "notable"  # that callers may ask for; with admin:* they may any
    limits: Limits = Limits()
    log_format: LogFormat = "text"
    log_level: LogLevel = "info"
    drain: float = 10.0  # how long requests may take to finish when the server is to end
    sweep_every: float = 300.0  # 0: never
    wait_for_store: float = 0.0  # how long to wait at the start for a store that is not ready
    accept_times: bool = False  # requests may say what time it is: for tests, and set by nothing else

    def __post_init__(self) -> None:
        for name in ("url", "host", "tls_cert", "tls_key", "tls_client_ca"):
            if not isinstance(getattr(self, name), str):
                raise SettingsError(f"{name} is {getattr(self, name)!r}; it must be a string")
        for name in ("insecure_no_authentication", "accept_times"):
            if not isinstance(getattr(self, name), bool):
                raise SettingsError(f"{name} is {getattr(self, name)!r}; it must be true or false")
        for name, known in CHOICES.items():
            if getattr(self, name) not in known:
                raise SettingsError(f"{name} is {getattr(self, name)!r}; it must be one of {known}")
        for name in ("drain", "sweep_every", "wait_for_store"):
            object.__setattr__(self, name, seconds(getattr(self, name), name))
        if not self.host:
            raise SettingsError("host is empty; 127.0.0.1 is this machine alone, 0.0.0.0 all networks")
        if _count(self.port, "port") > 65535:
            raise SettingsError(f"port is {self.port}; it must be at most 65535, or 0 for any that is free")
        if bool(self.tls_cert) != bool(self.tls_key):
            raise SettingsError("tls_cert and tls_key belong together: give both or none")
        if self.tls_client_ca and not self.tls_cert:
            raise SettingsError(
                "tls_client_ca asks for clients' certificates: that needs tls_cert and tls_key"
            )
        if self.auth == "required" and self.insecure_no_authentication:
            raise SettingsError("auth is 'required' and insecure_no_authentication says the opposite: decide")

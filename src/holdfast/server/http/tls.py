"""TLS: one context for as long as the server runs, whose certificate may be replaced meanwhile.

Whatever is loaded into a context counts for the handshakes to come; connections that are there keep what they
have. Clients' authorities can be added that way, but only a restart takes one away.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import NoReturn

from holdfast.errors import SettingsError
from holdfast.log import log

Stamp = tuple[tuple[int, int, int], ...]


class ServerContext(ssl.SSLContext):
    """What a server shows, and what it asks of its clients; it knows its files. `make_context` makes it."""

    files: tuple[str, str, str | None]
    stamp: Stamp  # of the files as they were read

    def reload(self) -> None:
        """Read the files again; `SettingsError` if they are no good, and then nothing has changed."""
        # Into another context first: loading a certificate whose key does not fit would spoil the one in use.
        stamp = _stamp(self.files)
        _fill(_bare(), self.files)
        _fill(self, self.files)
        self.stamp = stamp

    def reload_if_changed(self) -> bool:
        """Read the files again if they are others than before; log what comes of it."""
        try:
            stamp = _stamp(self.files)
            if stamp == self.stamp:
                return False
            self.stamp = stamp  # tried once, whatever comes of it: what is broken need not be told every time
            self.reload()
        except (SettingsError, OSError) as error:
            log().error("the certificate is not replaced: %s", error)
            return False
        log().info("the certificate %s was read anew", self.files[0])
        return True


def make_context(cert: str, key: str, client_ca: str | None = None) -> ServerContext:
    """Return a context with the certificate *cert*; with *client_ca*, clients need one of it signed by that.

    All three are names of PEM files.
    """
    context = _bare()
    context.files = (cert, key, client_ca or None)
    try:
        context.stamp = _stamp(context.files)
    except OSError as error:
        raise SettingsError(f"{error.filename} cannot be read: {error.strerror}") from error
    _fill(context, context.files)
    return context


def _bare() -> ServerContext:
    context = ServerContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    return context


def _fill(context: ssl.SSLContext, files: tuple[str, str, str | None]) -> None:
    cert, key, client_ca = files
    try:
        context.load_cert_chain(cert, key, password=_ask_nobody)
    except (ssl.SSLError, OSError) as error:
        raise SettingsError(f"{cert} and {key} are no certificate with its key: {_why(error)}") from error
    if client_ca is not None:
        try:
            context.load_verify_locations(client_ca)
        except (ssl.SSLError, OSError) as error:
            raise SettingsError(f"{client_ca} has no certificates of authorities: {_why(error)}") from error
        context.verify_mode = ssl.CERT_REQUIRED


def _ask_nobody() -> NoReturn:
    # OpenSSL would ask at the terminal, and the server would stand still until somebody answers.
    raise SettingsError("the key is encrypted; a server needs one that is not, in a file only it can read")


def _why(error: OSError) -> str:
    return error.strerror or getattr(error, "reason", None) or str(error)


def _stamp(files: tuple[str, str, str | None]) -> Stamp:
    found = (Path(file).stat() for file in files if file is not None)
    return tuple((each.st_mtime_ns, each.st_ino, each.st_size) for each in found)

"""TLS to a lock server: whom to trust, who we are, and what to do when one side does not trust the other."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

from holdfast.errors import StoreError, StoreMisconfigured, StoreUnavailable
from holdfast.stores.http.options import HTTPOptions

# What a server sends that does not like our certificate, or that we have none. TLS 1.3 says so only when we
# have asked for something already, and then it was not done.
_REFUSALS = ("CERTIFICATE", "UNKNOWN_CA", "BAD_CERTIFICATE", "ACCESS_DENIED")
_NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "RECORD_LAYER_FAILURE")


class TLS:
    """Wraps connections. Its files are read again when they change: certificates are renewed."""

    def __init__(self, options: HTTPOptions) -> None:
        self._options = options
        self._files = [file for file in (options.ca, options.cert, options.key) if file]
        self._read: tuple[tuple[int, ...], ssl.SSLContext] | None = None

    def wrap(self, connection: socket.socket) -> ssl.SSLSocket:
        """Shake hands."""
        try:
            return self._context().wrap_socket(connection, server_hostname=self._options.host)
        except ssl.SSLError as error:
            raise translate(error, self._options) from error

    def _context(self) -> ssl.SSLContext:
        try:
            stamp = tuple(Path(file).stat().st_mtime_ns for file in self._files)
        except OSError as error:
            raise StoreMisconfigured(
                f"{error.filename} cannot be read: {error.strerror}; check ca=, cert= and key= in the url"
            ) from error
        if self._read is None or self._read[0] != stamp:
            self._read = stamp, self._make_context()
        return self._read[1]

    def _make_context(self) -> ssl.SSLContext:
        options = self._options
        try:
            context = ssl.create_default_context(cafile=options.ca or None)
        except (OSError, ssl.SSLError) as error:
            raise StoreMisconfigured(f"{options.ca} has no certificates that can be read: {error}") from error
        if options.cert:
            try:
                # With a password that is none: OpenSSL would ask whoever sits at the terminal.
                context.load_cert_chain(options.cert, options.key or None, password="")
            except (OSError, ssl.SSLError) as error:
                raise StoreMisconfigured(
                    f"the certificate {options.cert} cannot be used with the key"
                    f" {options.key or options.cert}: {error}; the key must be its own and have no password"
                ) from error
        return context


def translate(error: ssl.SSLError, options: HTTPOptions) -> StoreError:
    """Return our error for a handshake that went wrong."""
    reason = error.reason or ""
    if isinstance(error, ssl.SSLCertVerificationError):
        return StoreMisconfigured(
            f"the certificate of {options} is not to be trusted: {error.verify_message}; name the file of the"
            " authority that signed it with ca= in the url, and the host as the certificate does"
        )
    if refusal := refused(error, options):
        return refusal
    if reason in _NO_TLS:
        return StoreMisconfigured(f"{options} does not speak TLS; is it an http:// one?")
    return StoreUnavailable(f"no TLS connection to {options}: {error}")


def refused(error: OSError, options: HTTPOptions) -> StoreMisconfigured | None:
    """Return our error if the server refuses us for our certificate."""
    reason = getattr(error, "reason", None) or ""
    if "ALERT" not in reason or not any(word in reason for word in _REFUSALS):
        return None
    said = reason.partition("ALERT_")[2].lower().replace("_", " ")
    return StoreMisconfigured(
        f"{options} does not accept our certificate ({said}); name one that it trusts with cert= and key= in"
        " the url"
    )

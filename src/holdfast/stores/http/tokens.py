"""The access token that a client shows its lock server: where it comes from, and nothing that tells it."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path

from holdfast.errors import NotAuthenticated, SettingsError, StoreMisconfigured

VARIABLE = "HOLDFAST_ACCESS_TOKEN"  # HOLDFAST_TOKEN is a lease's: `holdfast run` passes it on
_TOKEN = re.compile(r"[!-~]{1,500}")


class AccessTokens:
    """The token of the url, or else of a file, or else of the environment.

    A file is read again when the server does not know the token any more: then it was changed, most likely.
    """

    def __init__(self, token: str, file: str) -> None:
        self._file = "" if token else file
        self._mutex = threading.Lock()
        self.source = "the url"
        self.value = token  # empty: there is none
        if self._file:
            self.source = self._file
            self.value = self._read()
        elif not token:
            self.source = f"${VARIABLE}"
            self.value = os.environ.get(VARIABLE, "").strip()
        if self.value:
            self._check()

    def __repr__(self) -> str:
        return f"<access token from {self.source}>" if self.value else "<no access token>"

    def read_again(self, refused: str) -> bool:
        """Tell whether there is another token than the one that was *refused*."""
        with self._mutex:
            if self._file and self.value == refused:
                try:
                    self.value = self._read()
                    self._check()
                except (StoreMisconfigured, SettingsError):  # it is just being written; the old one it is
                    self.value = refused
            return self.value != refused

    def after_fork(self) -> None:
        """Go on in a forked child: another thread may have had the mutex, and is not here to give it back."""
        self._mutex = threading.Lock()

    def refused(self, said: str) -> NotAuthenticated:
        """Return what to raise when the server does not let us in."""
        if self.value:
            return NotAuthenticated(
                f"the server does not accept the access token from {self.source} ({said});"
                " `holdfast token create` makes a new one"
            )
        return NotAuthenticated(
            f"the server wants an access token ({said}); whoever runs it makes one with `holdfast token"
            f" create`. Put it into ${VARIABLE}, into a file named with token_file= in the url, or into"
            " the url: https://:hf_…@host"
        )

    def _read(self) -> str:
        try:
            with Path(self._file).open(encoding="utf-8") as file:
                return file.read(10_000).strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            raise StoreMisconfigured(
                f"the access token cannot be read from {self._file}: {reason}; check token_file= in the url"
            ) from None

    def _check(self) -> None:
        if not _TOKEN.fullmatch(self.value):
            raise SettingsError(
                f"what is in {self.source} is no access token: those look like hf_<12 digits>_<43 characters>"
            )

"""Who is to be told of the next event in the file: an empty file for each, in a directory beside it.

Who watches leaves its address there before it looks. Who has committed an event takes what it finds there,
and rings. So a watcher is rung once for each look, however much happens; and who writes while nobody watches
reads an empty directory, or finds none.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


class Watchers:
    """See the module. Nothing here fails: what is said are hints."""

    def __init__(self, file: Path) -> None:
        self._directory = f"{file}-watchers"

    def add(self, address: str) -> bool:
        """Have *address* told of the next event; False if there is no place to say so."""
        for _ in range(2):
            try:
                os.close(os.open(self._path(address), os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o666))
                return True
            except FileNotFoundError:
                with suppress(OSError):
                    Path(self._directory).mkdir(exist_ok=True)
            except OSError:
                break
        return False

    def take(self) -> Iterator[str]:
        """Yield the addresses that are to be told, each to one of those who take them."""
        try:
            names = os.listdir(self._directory)
        except OSError:
            return
        for name in names:
            try:
                os.unlink(f"{self._directory}/{name}")
            except FileNotFoundError:
                continue  # somebody else tells it
            except OSError:  # it is not ours to remove
                pass
            yield name.replace("~", "/")

    def remove(self, address: str) -> None:
        """Have nothing told to *address* any more."""
        with suppress(OSError):
            os.unlink(self._path(address))

    def _path(self, address: str) -> str:
        return f"{self._directory}/{address.replace('/', '~')}"

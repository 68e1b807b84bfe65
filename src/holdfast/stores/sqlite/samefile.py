"""Whether the path still leads to the file that we opened.

SQLite goes on in a file that was moved away, deleted or replaced, and so would we: with locks that nobody
else sees, while others take the same ones in the file that is at the path now. So we look after a request,
before it is answered: what was granted in another file than the path's is told to nobody.

Not after every request, if they come fast: a look costs a sixth of what a pair does. Whoever was granted a
lock just before the file went away believes in it for a while. To be some milliseconds late makes those few
more, and nothing worse.

Once the file is another one, everything is refused until somebody makes a new client. To go on in the new
file would be to forget the leases in the old one, whose holders may still believe in them.
"""

from __future__ import annotations

import os
from pathlib import Path

from holdfast import errors

Found = tuple[int, int]  # the device, and the number of the file there
Beside = list[tuple[str, int]]

_stat = os.stat  # of a str: a Path's own takes three times as long

ADVICE = (
    " Others do not see the locks that were taken there, so nothing more is done in it: stop all its clients,"
    " see that the right file is in its place, and start them again"
)


def find(path: str) -> Found | None:
    """Return what tells the file at *path* from all others that exist now; None if there is none."""
    try:
        found = _stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


class SameFile:
    """The file that a client uses, however often it connects. Shared by its connections."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.id = ""  # what its tables say who they are, once they were seen
        self._found: Found | None = None
        self.refusal = ""  # why nothing is done in it any more

    def look(self) -> Found | None:
        """Return which file is at the path, before we connect; raise if it is not ours any more."""
        found = find(self.path)
        if self._found is not None:
            self._compare(found)
        return found

    def settle(self, before: Found | None, id: str) -> bool:
        """Take note of what a new connection has found; False if it is not certain which file that is.

        There is no asking SQLite which file it has opened. So it has to be the same one *before* and after.
        """
        after = find(self.path)
        if before is None or before != after:
            return False
        if self._found is None:
            self._found, self.id = after, id
        self._compare(after, id)
        return True

    def _compare(self, found: Found | None, id: str | None = None) -> None:
        if found != self._found or id not in (None, self.id):
            happened = "moved away or deleted" if found is None else "replaced by another one"
            self._refuse(f"{self.path} was {happened} while it was in use.")

    def _refuse(self, what: str) -> None:
        self.refusal = what + ADVICE
        raise errors.StoreMisconfigured(self.refusal)

    def check(self, beside: Beside) -> None:
        """Raise if the file, or one of those *beside* it, is not the one that was opened."""
        try:
            found = _stat(self.path)
        except (FileNotFoundError, NotADirectoryError):
            self._compare(None)
            return
        except OSError as error:  # as if a directory on the way there may not be looked into any more
            raise errors.OutcomeUnknown(
                f"{self.path} cannot be seen any more, and may be another file by now: {error.strerror}"
            ) from error
        self._compare((found.st_dev, found.st_ino))
        for path, number in beside:
            now = find(path)
            # Nor is it any more what was opened, if that was closed while we looked.
            if (now is None or now[1] != number) and (path, number) in beside:
                happened = "deleted" if now is None else "replaced"
                self._refuse(f"{path} was {happened} while it was in use: it is a part of {self.path}.")

    def beside(self) -> Beside:
        """Return the log and its index, which stay the same ones while anybody is connected."""
        real = os.path.realpath(self.path)
        names = [f"{real}-wal", f"{real}-shm"]
        return [(name, found[1]) for name in names if (found := find(name)) is not None]

"""A filesystem of its own for a database: it can be filled up, and copied as a power cut would leave it.

It is ext4 on a loop device, over an image in memory where there is room: flushing costs little there, and
what was not flushed is not in the image all the same. That needs root; without it there are no such faults.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

_MEMORY, _ENOUGH = Path("/dev/shm"), 8 << 30
_TOOLS = ("mkfs.ext4", "mount", "umount")
_TRIES = 30

# It waits until whoever started it is gone, however that ended: what stays mounted cannot be removed. Then it
# waits for those who use it: servers have somebody who kills them, and who finds them by their place in it.
_JANITOR = """
cat >/dev/null
for _ in $(seq 150); do mountpoint -q "$1" || break; umount "$1" || sleep 0.1; done
mountpoint -q "$1" && umount -l "$1"
rm -f "$2"
rmdir -p "$1"
"""


class NoDisk(Exception):
    """There cannot be such a filesystem here; the text says why."""


class Disk:
    """A filesystem of *size* bytes, mounted at *path*, which must not exist yet. It belongs to *account*.

    *still* keeps its users from flushing anything for a while: only then can the image be copied as it is at
    one moment. *before_filling* is called when the disk is about to be filled.
    """

    def __init__(
        self,
        path: Path,
        *,
        size: int,
        account: str | None = None,
        still: Callable[[], AbstractContextManager[None]] = nullcontext,
        before_filling: Callable[[], None] = lambda: None,
    ) -> None:
        check()
        self.path = path
        self._still, self._before_filling = still, before_filling
        self._copies: dict[Path, _Mounted] = {}
        image = Path(tempfile.mkstemp(prefix="holdfast-disk-", dir=_place())[1])
        try:
            os.truncate(image, size)
            # Nothing is kept for root, who fills it, and nothing is written behind our back.
            _call("mkfs.ext4", "-q", "-m", "0", "-J", "size=16", "-E", "nodiscard", image)
            path.mkdir()
            self._mounted = _Mounted(path, image)
        except BaseException:
            image.unlink()
            raise
        if account is not None:
            shutil.chown(path, account)
        self._ballast = path / "ballast"

    @property
    def free(self) -> int:
        """How many bytes can still be written."""
        state = os.statvfs(self.path)
        return state.f_bavail * state.f_frsize

    def fill(self) -> None:
        """Take all the room there is."""
        self._before_filling()
        with self._ballast.open("ab") as ballast:
            piece = self.free
            while piece >= 4096:
                try:
                    os.posix_fallocate(ballast.fileno(), ballast.seek(0, os.SEEK_END), piece)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    piece //= 2

    def empty(self) -> None:
        """Give the room back."""
        self._ballast.unlink(missing_ok=True)
        folder = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(folder)  # before that it is free, but cannot be used
        finally:
            os.close(folder)

    def cut(self) -> Path:
        """Copy the image as it is at this moment, mount the copy and return where.

        What programs wrote and did not flush is still in the kernel's memory, and not in the image: as if the
        power failed now. `discard` removes the copy.
        """
        copy = Path(tempfile.mkdtemp(prefix="copy-", dir=self.path.parent))
        image = Path(tempfile.mkstemp(prefix="holdfast-copy-", dir=self._mounted.image.parent)[1])
        try:
            with self._still():
                for _ in range(_TRIES):
                    before = self._mounted.quiet()
                    _call("cp", "--sparse=always", self._mounted.image, image)
                    if self._mounted.written() == before:
                        break
                else:
                    raise TimeoutError(f"{self.path} is written to without a break")
            self._copies[copy] = _Mounted(copy, image)
        except BaseException:
            image.unlink(missing_ok=True)
            copy.rmdir()
            raise
        return copy

    def discard(self, copy: Path) -> None:
        """Unmount and remove what `cut` has returned; *copy* may also be a file in it."""
        mounted = next(path for path in (copy, *copy.parents) if path in self._copies)
        self._copies.pop(mounted).close()

    def close(self) -> None:
        """Unmount everything, whoever may still use it, and remove it."""
        for copy in list(self._copies):
            self.discard(copy)
        self._mounted.close()


class _Mounted:
    """An *image*, mounted at *path* until it is closed or we are gone."""

    def __init__(self, path: Path, image: Path) -> None:
        self.path, self.image = path, image
        _call("mount", "-o", "loop,noatime,noinit_itable", image, path)
        device = path.stat().st_dev
        self._figures = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat")
        self._janitor = subprocess.Popen(
            ["sh", "-c", _JANITOR, "sh", path, image],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is not for it
            cwd="/",
        )

    def written(self) -> tuple[int, int]:
        """How often the device was written to, and how often that is under way."""
        figures = self._figures.read_text().split()
        return int(figures[4]), int(figures[8])

    def quiet(self) -> tuple[int, int]:
        """Wait until nothing is under way, and return the figures."""
        for _ in range(1000):
            before = self.written()
            time.sleep(0.002)
            if before == self.written() and before[1] == 0:
                return before
        raise TimeoutError(f"{self.path} is written to without a break")

    def close(self) -> None:
        for _ in range(20):
            if subprocess.run(["umount", self.path], stderr=subprocess.DEVNULL, check=False).returncode == 0:
                self._janitor.kill()
                self.image.unlink()
                self.path.rmdir()
                break
            time.sleep(0.05)  # a process that was killed is still on its way out
        assert self._janitor.stdin is not None
        self._janitor.stdin.close()  # if it is still there, it does what we could not
        self._janitor.wait()


def check() -> None:
    """Raise `NoDisk` if there cannot be a filesystem of our own."""
    if os.geteuid() != 0:
        raise NoDisk("only root may mount a filesystem")
    for tool in _TOOLS:
        if _find(tool) is None:
            raise NoDisk(f"there is no {tool}")
    if not Path("/dev/loop-control").exists():
        raise NoDisk("there are no loop devices")


def _find(tool: str) -> str | None:
    return shutil.which(tool, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")


def _place() -> Path:
    roomy = os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free >= _ENOUGH
    return _MEMORY if roomy else Path(tempfile.gettempdir())


def _call(tool: str, *arguments: str | Path) -> None:
    done = subprocess.run([_find(tool) or tool, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoDisk(f"{tool} failed: {done.stderr.strip()}")

"""A library put before a program's own, which slows or breaks its disk and sets its clock while it runs.

`preload.c` is compiled when a stage is set. What it does it reads from a file in memory that all processes of
the stage share, so a change takes effect everywhere at once. It costs nothing that could be measured while
nothing is set, and does what libfaketime would: that one reads a file each time a program looks at its clock,
and databases look often.
"""

from __future__ import annotations

import errno
import mmap
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")
_FIELD = struct.Struct("q")
_OFFSET, _DELAY, _ERROR, _HELD, _FLUSHES = range(5)


class Preload:
    """The library and its controls, in *folder*, which every user that runs a process of ours can enter."""

    def __init__(self, folder: Path) -> None:
        self.library, self._control = folder / "preload.so", folder / "control"
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            raise FileNotFoundError("there is no C compiler")
        command = [compiler, "-O2", "-shared", "-fPIC", "-pthread"]
        done = subprocess.run(
            [*command, "-o", self.library, SOURCE, "-ldl"], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise OSError(f"{SOURCE.name} cannot be compiled: {done.stderr}")
        self._control.write_bytes(bytes(5 * _FIELD.size))
        self._control.chmod(0o666)  # it is mapped for writing, by servers that are not root
        self.library.chmod(0o755)
        with self._control.open("r+b") as file:
            self._fields = mmap.mmap(file.fileno(), 0)

    @property
    def environment(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self.library), "PROOF_CONTROL": str(self._control)}

    @property
    def offset(self) -> float:
        """How many seconds clocks are ahead of the real one."""
        return self._get(_OFFSET) / 1e6

    def set_clock(self, seconds: float) -> None:
        """Set clocks to *seconds* from the real one."""
        self._set(_OFFSET, round(seconds * 1e6))

    def slow_fsync(self, seconds: float) -> None:
        self._set(_DELAY, round(seconds * 1e6))

    def fail_fsync(self, on: bool) -> None:
        self._set(_ERROR, errno.EIO if on else 0)

    @contextmanager
    def hold_fsync(self) -> Iterator[None]:
        """Let no fsync begin as long as this lasts; those that have begun go on."""
        self._set(_HELD, 1)
        try:
            yield
        finally:
            self._set(_HELD, 0)

    @property
    def flushes(self) -> int:
        """How often something was flushed to the disk so far, or would have been."""
        return self._get(_FLUSHES)

    def close(self) -> None:
        self._fields.close()

    def _get(self, field: int) -> int:
        value: int = _FIELD.unpack_from(self._fields, field * _FIELD.size)[0]
        return value

    def _set(self, field: int, value: int) -> None:
        _FIELD.pack_into(self._fields, field * _FIELD.size, value)

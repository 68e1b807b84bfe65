"""What goes on in the background is logged under ``holdfast``. Importing logging takes a while: only then."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import logging


def log() -> logging.Logger:
    """Return the logger. As for any library, it is silent until the program sets up logging."""
    import logging

    logger = logging.getLogger("holdfast")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    return logger


def warn(message: str, *values: object) -> None:
    """Log a warning from a thread that must go on, whatever filters and handlers the program has."""
    with suppress(Exception):
        log().warning(message, *values)

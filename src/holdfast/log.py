"""What goes on in the background is logged under ``holdfast``. Importing logging takes a while: only then."""

from __future__ import annotations

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

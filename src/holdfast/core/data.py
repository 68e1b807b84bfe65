"""Plain data: dataclasses that type checkers know to be frozen.

They are not frozen when the program runs. There a frozen dataclass takes three times as long to make,
and twice as long to define, and both are paid by everybody: on every request, and on every import.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def data(cls: type[T]) -> type[T]:
    """Make *cls* a class of values: compared, hashed and shown by their fields."""
    return dataclass(slots=True, unsafe_hash=True)(cls)

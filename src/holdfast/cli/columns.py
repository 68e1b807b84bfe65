"""Tables for a terminal of any width: columns give way, and where that is not enough they are left out."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from holdfast.cli.output import DIM, GAP, has_colours, paint, table, width_of
from holdfast.core.data import data


@data
class Layout:
    """What the columns of a table are called, and what becomes of them where there is no room."""

    header: tuple[str, ...]
    right: frozenset[str]  # these are of numbers
    shrink: Mapping[str, int]  # may be cut down to this
    drop: tuple[str, ...]  # are left out, in this order


def fitted(layout: Layout, rows: Sequence[Sequence[str]], width: int | None) -> list[list[str]]:
    """Return header and rows with as many columns as fit, at least those that are never dropped."""
    columns = dict(zip(layout.header, zip(layout.header, *rows, strict=True), strict=True))
    shrink = layout.shrink
    for name in layout.drop:
        needed = [min(max(map(width_of, cells)), shrink.get(of, 1000)) for of, cells in columns.items()]
        if width is None or sum(needed) + GAP * (len(needed) - 1) <= width:
            break
        del columns[name]
    else:
        shrink = {layout.header[0]: 1}
    names = list(columns)
    return table(
        list(zip(*columns.values(), strict=True)),
        right=frozenset(names.index(name) for name in layout.right if name in columns),
        shrink={names.index(name): least for name, least in shrink.items() if name in columns},
        width=width,
    )


def print_table(layout: Layout, rows: Sequence[Sequence[str]], styles: Sequence[str], painted: int) -> None:
    """Print a table as wide as the terminal; of each row the column *painted* is in its style."""
    width = os.get_terminal_size(sys.stdout.fileno()).columns if sys.stdout.isatty() else 0
    head, *body = fitted(layout, rows, width or None)
    colours = has_colours(sys.stdout)
    print(paint("  ".join(head).rstrip(), DIM, colours=colours))
    for style, row in zip(styles, body, strict=True):
        row[painted] = paint(row[painted], style, colours=colours)
        print("  ".join(row).rstrip())

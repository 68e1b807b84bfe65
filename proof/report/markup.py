"""Elements of a page. Text becomes markup only here, so nothing can be forgotten to be escaped."""

from __future__ import annotations

import html
from collections.abc import Iterable

# Shown as what they are: they would end lines, hide text, or turn its direction.
_UNSEEN = [
    *range(9),
    *range(11, 32),
    *range(127, 160),
    0x061C,
    *range(0x200B, 0x2010),
    *range(0x2028, 0x202F),
]
_UNSEEN += [*range(0x2066, 0x206A), 0xFEFF]
_SEEN = {code: f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" for code in _UNSEEN}
_VOID = ("meta", "path", "rect", "line")


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


Inside = str | int | None | Iterable["Inside"]


def visible(text: str) -> str:
    """Return *text* with everything spelled out that a screen or a terminal would obey instead of showing."""
    return text.translate(_SEEN).encode("utf-8", "backslashreplace").decode("utf-8")


def markup(inside: Inside) -> Markup:
    """Return it as markup: text is escaped, None is nothing, other things one after the other."""
    if isinstance(inside, Markup):
        return inside
    if inside is None:
        return Markup()
    if isinstance(inside, int):
        return Markup(f"{inside:,}")
    if isinstance(inside, str):
        return Markup(html.escape(visible(inside)))
    return Markup("".join(markup(each) for each in inside))


def element(name: str, /, *inside: Inside, **attributes: str | float | bool | None) -> Markup:
    """Return an element: ``class_`` is class, ``data_x`` data-x; None and False leave an attribute out."""
    written = "".join(
        f" {key.rstrip('_').replace('_', '-')}"
        + ("" if value is True else f'="{html.escape(visible(str(value)))}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in _VOID:
        return Markup(f"<{name}{written}>" if name == "meta" else f"<{name}{written}/>")
    return Markup(f"<{name}{written}>{markup(inside)}</{name}>")


def table(
    head: Iterable[Inside], rows: Iterable[Iterable[Inside]], *, caption: str, numbers: Iterable[int] = ()
) -> Markup:
    """Return a table; the columns *numbers* are set to the right. It scrolls by itself if it is too wide."""
    right = set(numbers)

    def cells(name: str, row: Iterable[Inside], **more: str) -> list[Markup]:
        return [
            each
            if isinstance(each, Markup) and each.startswith(("<td", "<th"))
            else element(name, each, class_="number" if place in right else None, **more)
            for place, each in enumerate(row)
        ]

    return element(
        "div",
        element(
            "table",
            element("caption", caption),
            element("thead", element("tr", cells("th", head, scope="col"))),
            element("tbody", [element("tr", cells("td", row)) for row in rows]),
        ),
        class_="scroll",
        tabindex="0",
        role="region",
        aria_label=caption,
    )


def spot(
    name: str, left: float, width: float | None = None, /, *inside: Inside, **attributes: str | None
) -> Markup:
    """Return an element at a place of a lane: *left* and *width* are shares of it, from 0 to 1."""
    left = min(max(left, 0.0), 1.0)
    style = f"left:{left * 100:.2f}%"
    if width is not None:
        style += f";width:{min(max(width, 0.0), 1.0 - left) * 100:.2f}%"
    return element(name, *inside, style=style, **attributes)

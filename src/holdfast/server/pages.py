"""Pages of what a caller may see, for those who may not see everything."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

from holdfast.core.access import Right
from holdfast.core.cluster import ListWork, WorkPage
from holdfast.core.data import replace
from holdfast.core.requests import List, Page
from holdfast.server.admission.access import Principal
from holdfast.server.backend import Backend

Listing = TypeVar("Listing", List, ListWork)


async def seen_page(backend: Backend, wanted: Listing, principal: Principal) -> Page | WorkPage:
    """Return what of a listing they may observe, in the order of the keys, and where to go on."""
    if principal.everywhere("observe"):
        return await backend.ask(wanted)
    items, page_of = ("locks", Page) if isinstance(wanted, List) else ("works", WorkPage)
    found: list[Any] = []
    for right, part in _parts(wanted, principal.ranges("observe")):
        left = wanted.limit - len(found)
        page: Any = await backend.ask(replace(part, limit=left if right.prefix else 1))
        found += [each for each in getattr(page, items) if right.prefix or each.key == right.key]
        if len(found) == wanted.limit:
            # There may be more or not. The place to go on is the last that was shown: any other key would
            # tell of what the caller may not know of.
            return page_of(tuple(found), found[-1].key)
    return page_of(tuple(found))


def _parts(wanted: Listing, rights: tuple[Right, ...]) -> Iterator[tuple[Right, Listing]]:
    """Cut a listing into those of its parts that may be seen, in the order of their keys."""
    for right in rights:
        if right.key.startswith(wanted.prefix):
            prefix = right.key
        elif right.prefix and wanted.prefix.startswith(right.key):
            prefix = wanted.prefix
        else:
            continue
        inside = wanted.after.startswith(prefix)
        if wanted.after > prefix and not inside:
            continue  # all of it was shown on the pages before
        if not right.prefix and wanted.after >= right.key:
            continue
        yield right, replace(wanted, prefix=prefix, after=wanted.after if inside else "")

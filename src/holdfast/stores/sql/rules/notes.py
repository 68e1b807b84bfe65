"""What a lock's row keeps beyond its lease, as JSON: the notes, and whose lease keeps it shut."""

from __future__ import annotations

import json
from functools import lru_cache

from holdfast.core.data import as_dict, data
from holdfast.core.family import NO_NOTES, Notes, dump, known, load_notes
from holdfast.core.requests import Holder
from holdfast.stores.sql.rules.holds import Hold


@data
class Gone:
    """Whose lease is over, while the lock is shut because of its terms."""

    owner: str
    host: str
    pid: int
    token: int
    granted_at: int
    freed_at: int = 0  # when the last hold was gone

    def holder(self, now: int) -> Holder:
        """Return them as others are told."""
        held_for = (now - self.granted_at) / 1e6
        return Holder(self.owner, self.host, self.pid, self.token, held_for, gone=True)


def lets_in_before_the_end(text: str | None) -> bool:
    """Tell whether somebody may fit before the end of the row: it is not exclusive, was shut, or is free.

    That of a free lock may be the time until which a result is kept.
    """
    return text is not None and ('"mode"' in text or '"shut_until"' in text or '"kept"' in text)


def gone(hold: Hold) -> Gone:
    """Return whose hold it was."""
    return Gone(hold.owner, hold.host, hold.pid, hold.token, hold.granted_at)


def write_notes(notes: Notes, shut_by: Gone | None) -> str | None:
    """Return both as the row keeps them; None if there is nothing to keep."""
    if shut_by is None:
        return dump(notes)
    return json.dumps({**json.loads(dump(notes) or "{}"), "shut_by": as_dict(shut_by)})


@lru_cache(64)  # they seldom change, and may be long
def read_notes(text: str | None) -> tuple[Notes, Gone | None]:
    """Return what `write_notes` made of them."""
    if not text:
        return NO_NOTES, None
    fields = json.loads(text)
    shut_by = fields.pop("shut_by", None)
    return load_notes(json.dumps(fields)), Gone(**known(Gone, shut_by)) if shut_by else None

"""Plain requests about many keys, tried together in one transaction: see `stores.base.Together`."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

from holdfast import errors
from holdfast.core import requests as r
from holdfast.stores.sql.dialect import Dialect
from holdfast.stores.sql.transactions.keys import KeyRequests
from holdfast.stores.sql.transactions.session import Conflict


class Together:
    """See the module."""

    def __init__(self, keys: KeyRequests, dialect: Dialect[Any]) -> None:
        self._keys = keys
        self._dialect = dialect

    def may_have(self, request: r.Request[Any]) -> bool:
        """Tell whether *request* is worth trying."""
        return self._dialect.groups and self._keys.is_likely_fast(request)

    def groups(self, requests: Sequence[r.Request[Any]]) -> Iterator[list[r.Request[Any]]]:
        """Cut *requests* where their order matters: around what is not plain, and between two of one key."""
        group: dict[str, r.Request[Any]] = {}
        for request in requests:
            key = getattr(request, "key", "")
            is_plain = self.may_have(request)
            if group and (not is_plain or key in group):
                yield list(group.values())
                group = {}
            if is_plain:
                group[key] = request
            else:
                yield [request]
        if group:
            yield list(group.values())

    def answer(self, requests: Sequence[r.Request[Any]]) -> list[Any]:
        """Answer those for which a fast path will do."""
        acquires = [each for each in requests if isinstance(each, r.Acquire)]
        releases = [each for each in requests if isinstance(each, r.Release)]
        try:
            tokens, released = self._dialect.together(acquires, releases)
        except errors.StoreError as error:
            of_all = isinstance(error, errors.OutcomeUnknown | errors.StoreUnavailable)
            if of_all and not isinstance(error, Conflict):
                return [copy.copy(error) for _ in requests]  # each collects a traceback, where it is raised
            # All were rolled back: because of one, or of somebody else. By itself each learns its own.
            return [None] * len(requests)
        answers: list[Any] = []
        for each in requests:
            if isinstance(each, r.Acquire):
                token = tokens.get(each.key)
                answers.append(None if token is None else r.Granted(token, each.ttl))
            else:
                answers.append(r.Released() if each.key in released else None)  # type: ignore[attr-defined]
        return answers

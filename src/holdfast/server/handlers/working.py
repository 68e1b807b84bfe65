"""Handlers of work: offered, assigned, finished, forgotten, and looked at."""

from __future__ import annotations

from typing import Any

from holdfast import errors
from holdfast.core.cluster import (
    LARGEST_DATA,
    Assign,
    Assigned,
    CountWork,
    Finish,
    Finished,
    Forget,
    InspectWork,
    ListWork,
    Offer,
    OfferedWork,
    WorkPage,
)
from holdfast.core.data import replace
from holdfast.core.requests import Request
from holdfast.server.admission.access import own_name, scoped
from holdfast.server.admission.limits import Budget
from holdfast.server.backend import Backend
from holdfast.server.handlers.call import Call
from holdfast.server.handlers.looking import NOTHING
from holdfast.server.handlers.replies import answered, error_for, listed, refused
from holdfast.server.handlers.visible import pages
from holdfast.server.http.message import Response
from holdfast.server.shapes import JsonText

OFFERED_AS_ONE = 100  # works that cost as much as a request
_RESULT = JsonText(LARGEST_DATA)


class Working:
    """See the module."""

    def __init__(self, backend: Backend, budget: Budget) -> None:
        self._backend = backend
        self._budget = budget

    async def offer(self, call: Call) -> Response:
        """Have work done. All keys must be allowed, or nothing is done."""
        given = call.given
        self._budget.asked(call.principal, len(given["works"]) / OFFERED_AS_ONE)  # beside the request itself
        for each in given["works"]:
            call.require("acquire", each["key"])
        for each in given["works"]:
            self._budget.check_key(call.principal, each["key"])
        works = tuple(OfferedWork(**each) for each in given["works"])
        return await self._do(call, Offer(works, given["again"], given["now"]))

    async def assign(self, call: Call) -> Response:
        """Take one piece of work."""
        given, principal = call.given, call.principal
        id = "" if given["id"] is None else scoped(principal, given["id"])
        if given["owner"] is not None:
            owner = scoped(principal, given["owner"])
        else:
            owner = id or own_name(principal, given["attempt"], self._backend.secret)
        request = Assign(
            key=call.named,
            attempt=given["attempt"],
            owner=owner,
            ttl=given["ttl"],
            client=call.client,
            id=id,
            data=given["data"],
            due=given["due"],
            again=given["again"],
            now=given["now"],
        )
        self._budget.check_lease(principal, request.key, request.attempt, request.ttl)
        with self._budget.asking(principal):
            answer = await self._backend.ask(request, call.history)
            if isinstance(answer, Assigned):
                self._budget.granted(principal, request.key, request.attempt, request.ttl)
        return self._plain(request, answer)

    async def finish(self, call: Call) -> Response:
        """End an assignment. Also if the caller has gone meanwhile: what it has done is done."""
        given = call.given
        if given["ending"] == "completed" and given["text"]:
            _RESULT.read(given["text"], "text")
        elif len(given["text"].encode()) > LARGEST_DATA:
            raise errors.SettingsError(
                f"text has more than {LARGEST_DATA} bytes in UTF-8; say in less what went wrong"
            )
        request = Finish(call.named, **given)
        answer = await self._backend.ask_surely(request, call.history)
        if isinstance(answer, Finished):
            self._budget.ended(call.principal, call.named, given["attempt"])
        return self._plain(request, answer)

    async def forget(self, call: Call) -> Response:
        """Forget work that nobody has."""
        request = Forget(call.named, call.by, call.given["now"])
        answer = await self._backend.ask(request, call.history)
        return _unknown(call) if answer is None else self._plain(request, answer)

    async def inspect(self, call: Call) -> Response:
        """Look at one piece of work."""
        view = await self._backend.ask(InspectWork(call.named, call.given["now"]))
        return _unknown(call) if view is None else answered(view)

    async def list(self, call: Call) -> Response:
        """Look at much of it: at what the caller may see, in the order of the keys."""
        wanted = ListWork(**call.given)
        if wanted.instance and "/" not in wanted.instance:
            # As the caller says it: own ids have no slash. Others' are said as they are shown.
            wanted = replace(wanted, instance=scoped(call.principal, wanted.instance))
        if call.principal.everywhere("observe"):
            return answered(await self._backend.ask(wanted))
        works, after = await pages(self._backend, wanted, call.principal.ranges("observe"), "works")
        return answered(WorkPage(works, after))

    async def count(self, call: Call) -> Response:
        """Count it: the types of which the caller may see everything."""
        counts = await self._backend.ask(CountWork(call.given["now"]))
        seen = tuple(each for each in counts if call.principal.covers("observe", each.type))
        return listed("work_counts", seen)

    async def _do(self, call: Call, request: Request[Any]) -> Response:
        return self._plain(request, await self._backend.ask(request, call.history))

    @staticmethod
    def _plain(request: Request[Any], answer: Any) -> Response:
        if error := error_for(request, answer):
            return refused(error, answer)
        return answered(answer)


def _unknown(call: Call) -> Response:
    unknown = errors.RequestRefused(
        404, f"there is no work {call.named!r}: it was never offered, or is forgotten"
    )
    return refused(unknown, NOTHING)

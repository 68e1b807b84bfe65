"""Handlers of instances: they join, beat, claim work, and leave; and somebody looks who is there."""

from __future__ import annotations

from holdfast.core.cluster import (
    Beat,
    Claim,
    Claimed,
    Heartbeat,
    InstancePage,
    InstanceView,
    Join,
    Leave,
    ListInstances,
    instance_key,
)
from holdfast.core.data import replace
from holdfast.errors import AccessDenied
from holdfast.server.admission.access import scoped
from holdfast.server.admission.limits import Budget
from holdfast.server.backend import Backend
from holdfast.server.handlers.call import Call
from holdfast.server.handlers.replies import answered, error_for, refused
from holdfast.server.http.message import Response
from holdfast.server.routes.route import MOST_LISTED


class Membership:
    """See the module. Ids are within a principal, as owners are: nobody beats or claims for another's."""

    def __init__(self, backend: Backend, budget: Budget) -> None:
        self._backend = backend
        self._budget = budget

    async def join(self, call: Call) -> Response:
        """Become an instance."""
        given = call.given
        id = scoped(call.principal, given["id"])
        call.require("acquire", instance_key(id))
        self._budget.check_join(call.principal, id, given["ttl"])
        request = Join(
            id,
            scoped(call.principal, given["name"] or given["id"]),
            call.client,
            given["capacity"],
            given["ttl"],
            given["version"],
            given["now"],
        )
        return self._reply(call, request, await self._backend.ask(request, call.history))

    async def heartbeat(self, call: Call) -> Response:
        """Go on being one."""
        given = call.given
        self._budget.check_ttl(given["ttl"], renewing=True)
        id = scoped(call.principal, call.named)
        request = Heartbeat(id, call.client, given["ttl"], given["drain"], given["now"])
        return self._reply(call, request, await self._backend.ask(request, call.history))

    async def leave(self, call: Call) -> Response:
        """Stop being one. Also if the caller has gone meanwhile: others wait for its work."""
        id = scoped(call.principal, call.named)
        answer = await self._backend.ask_surely(Leave(id, call.given["now"]), call.history)
        self._budget.gone(call.principal, id)
        return answered(answer, id=id)

    def _reply(self, call: Call, request: Join | Heartbeat, answer: Beat) -> Response:
        if error := error_for(request, answer):
            self._budget.gone(call.principal, request.id)
            return refused(error, answer)
        self._budget.beat(call.principal, request.id, request.ttl)
        return answered(answer, id=request.id)

    async def claim(self, call: Call) -> Response:
        """Take work of some types. It may be any of them, so the caller needs a right to all."""
        given, principal = call.given, call.principal
        for type in given["types"]:
            if not principal.covers("acquire", type):
                pattern = f"{type}:*" if type else "*"
                raise AccessDenied(
                    f"{principal.name} has no right to acquire all work of type {type!r}: ask for an access"
                    f" token that allows acquire:{pattern}"
                )
        self._budget.check_ttl(given["ttl"])
        request = Claim(
            scoped(principal, call.named),
            given["number"],
            given["attempt"],
            given["types"],
            self._budget.room_for_leases(principal, given["limit"]),
            given["ttl"],
            call.client,
            given["spread"],
            given["now"],
        )
        answer = await self._backend.ask(request, call.history)
        if isinstance(answer, Claimed):
            for work in answer.works:
                self._budget.granted(principal, work.key, work.attempt, work.expires_in)
            return answered(answer)
        error = error_for(request, answer)
        assert error is not None, "who is alive is given what there is"
        return refused(error, answer)

    async def instances(self, call: Call) -> Response:
        """See who has joined: those that the caller may see."""
        wanted = ListInstances(**call.given)
        if call.principal.everywhere("observe"):
            return answered(await self._backend.ask(wanted))
        found: list[InstanceView] = []
        after: str | None = wanted.after
        while after is not None:
            page = await self._backend.ask(replace(wanted, after=after, limit=MOST_LISTED))
            for each in page.instances:
                if call.principal.may("observe", instance_key(each.id)):
                    found.append(each)
                    if len(found) == wanted.limit:
                        return answered(InstancePage(tuple(found), each.id))
            after = page.after
            if after is not None:
                self._budget.asked(call.principal)  # however few they may see
        return answered(InstancePage(tuple(found)))

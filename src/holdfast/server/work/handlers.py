"""Handlers of instances, which join, beat, claim and leave; and of work: offered, finished, forgotten."""

from __future__ import annotations

from holdfast.core import cluster as c
from holdfast.core.data import replace
from holdfast.core.wire.route import MOST_LISTED
from holdfast.core.wire.shapes import JsonText
from holdfast.errors import AccessDenied, SettingsError
from holdfast.server.admission.access import own_name, scoped
from holdfast.server.admission.limits import Budget
from holdfast.server.backend import Backend
from holdfast.server.call import Call
from holdfast.server.http.message import Response
from holdfast.server.pages import seen_page
from holdfast.server.replies import answered, error_told, listed, missing, page, refused, settled

OFFERED_AS_ONE = 100  # works that cost as much as a request
_RESULT = JsonText(c.LARGEST_DATA)


class WorkHandlers:
    """See the module. Ids are within a principal, as owners are: nobody beats or claims for another's."""

    def __init__(self, backend: Backend, budget: Budget) -> None:
        self._backend = backend
        self._budget = budget

    async def join(self, call: Call) -> Response:
        """Become an instance."""
        given = call.given
        id = scoped(call.principal, given["id"])
        call.require("acquire", c.instance_key(id))
        self._budget.check_join(call.principal, id, given["ttl"])
        name = scoped(call.principal, given["name"] or given["id"])
        request: c.Join = call.request(id=id, name=name)
        return self._reply(call, request, await self._backend.ask(request, call.history))

    async def heartbeat(self, call: Call) -> Response:
        """Go on being one."""
        self._budget.check_ttl(call.given["ttl"], renewing=True)
        request: c.Heartbeat = call.request(id=scoped(call.principal, call.named))
        return self._reply(call, request, await self._backend.ask(request, call.history))

    async def leave(self, call: Call) -> Response:
        """Stop being one. Also if the caller has gone meanwhile: others wait for its work."""
        id = scoped(call.principal, call.named)
        answer = await self._backend.ask_surely(call.request(id=id), call.history)
        self._budget.gone(call.principal, id)
        return answered(answer, id=id)

    def _reply(self, call: Call, request: c.Join | c.Heartbeat, answer: c.Beat) -> Response:
        if error := error_told(request, answer):
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
        request: c.Claim = call.request(
            id=scoped(principal, call.named), limit=self._budget.room_for_leases(principal, given["limit"])
        )
        answer = await self._backend.ask(request, call.history)
        if isinstance(answer, c.Claimed):
            for work in answer.works:
                self._budget.granted(principal, work.key, work.attempt, work.expires_in)
        return settled(request, answer)

    async def instances(self, call: Call) -> Response:
        """See who has joined: those that the caller may see."""
        wanted: c.ListInstances = call.request()
        if call.principal.everywhere("observe"):
            return await page(await self._backend.ask(wanted))
        found: list[c.InstanceView] = []
        after: str | None = wanted.after
        while after is not None:
            some = await self._backend.ask(replace(wanted, after=after, limit=MOST_LISTED))
            for each in some.instances:
                if call.principal.may("observe", c.instance_key(each.id)):
                    found.append(each)
                    if len(found) == wanted.limit:
                        return await page(c.InstancePage(tuple(found), each.id))
            after = some.after
            if after is not None:
                self._budget.asked(call.principal)  # however few they may see
        return await page(c.InstancePage(tuple(found)))

    async def offer(self, call: Call) -> Response:
        """Have work done. All keys must be allowed, or nothing is done."""
        request: c.Offer = call.request()
        self._budget.asked(call.principal, len(request.works) / OFFERED_AS_ONE)  # beside the request itself
        for work in request.works:
            call.require("acquire", work.key)
        for work in request.works:
            self._budget.check_key(call.principal, work.key)
        return settled(request, await self._backend.ask(request, call.history))

    async def assign(self, call: Call) -> Response:
        """Take one piece of work."""
        given, principal = call.given, call.principal
        id = "" if given["id"] is None else scoped(principal, given["id"])
        if given["owner"] is not None:
            owner = scoped(principal, given["owner"])
        else:
            owner = id or own_name(principal, given["attempt"], self._backend.secret)
        request: c.Assign = call.request(owner=owner, id=id)
        self._budget.check_lease(principal, request.key, request.attempt, request.ttl)
        with self._budget.asking(principal):
            answer = await self._backend.ask(request, call.history)
            if isinstance(answer, c.Assigned):
                self._budget.granted(principal, request.key, request.attempt, request.ttl)
        return settled(request, answer)

    async def finish(self, call: Call) -> Response:
        """End an assignment. Also if the caller has gone meanwhile: what it has done is done."""
        given = call.given
        if given["ending"] == "completed" and given["text"]:
            _RESULT.read(given["text"], "text")
        elif len(given["text"].encode()) > c.LARGEST_DATA:
            raise SettingsError(
                f"text has more than {c.LARGEST_DATA} bytes in UTF-8; say in less what went wrong"
            )
        request: c.Finish = call.request()
        answer = await self._backend.ask_surely(request, call.history)
        if isinstance(answer, c.Finished):
            self._budget.ended(call.principal, call.named, given["attempt"])
        return settled(request, answer)

    async def forget(self, call: Call) -> Response:
        """Forget work that nobody has."""
        request: c.Forget = call.request()
        answer = await self._backend.ask(request, call.history)
        return _unknown(call) if answer is None else settled(request, answer)

    async def inspect_work(self, call: Call) -> Response:
        """Look at one piece of work."""
        view = await self._backend.ask(call.request())
        return _unknown(call) if view is None else answered(view)

    async def list_work(self, call: Call) -> Response:
        """Look at much of it: at what the caller may see, in the order of the keys."""
        wanted: c.ListWork = call.request()
        if wanted.instance and "/" not in wanted.instance:
            # As the caller says it: own ids have no slash. Others' are said as they are shown.
            wanted = replace(wanted, instance=scoped(call.principal, wanted.instance))
        return await page(await seen_page(self._backend, wanted, call.principal))

    async def count_work(self, call: Call) -> Response:
        """Count it: the types of which the caller may see everything."""
        counts = await self._backend.ask(call.request())
        seen = tuple(each for each in counts if call.principal.covers("observe", each.type))
        return await listed("work_counts", seen)


def _unknown(call: Call) -> Response:
    return missing(f"there is no work {call.named!r}: it was never offered, or is forgotten")

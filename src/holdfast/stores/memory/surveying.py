"""Looking at work, which changes nothing."""

from __future__ import annotations

from holdfast.core import cluster as c
from holdfast.core.cluster import work_type
from holdfast.stores.memory.recording import store_time
from holdfast.stores.memory.state import Post
from holdfast.stores.memory.work import Working


class Surveying(Working):
    """See the module."""

    def _inspect_work(self, request: c.InspectWork, post: Post) -> c.WorkView | None:
        with self._world.cluster_mutex:
            work = self._world.works.get(request.key)
            return None if work is None else work.view()

    def _list_work(self, request: c.ListWork, post: Post) -> c.WorkPage:
        with self._world.cluster_mutex:
            found = [
                work.view()
                for key, work in sorted(self._world.works.items())
                if key > request.after
                and key.startswith(request.prefix)
                and request.state in (None, work.state)
                and request.instance in (None, work.instance)
            ]
        page = tuple(found[: request.limit])
        return c.WorkPage(page, page[-1].key if len(found) > len(page) and page else None)

    def _count_work(self, request: c.CountWork, post: Post) -> tuple[c.WorkCount, ...]:
        now = store_time(request.now)
        with self._world.cluster_mutex:
            open_work = [work for work in self._world.works.values() if work.state != "completed"]
        counts = []
        for type in sorted({work_type(work.key) for work in open_work}):
            of_type = [work for work in open_work if work_type(work.key) == type]
            states = [work.state for work in of_type]
            oldest = min((work.due for work in of_type if work.state == "offered"), default=now)
            counts.append(
                c.WorkCount(
                    type,
                    states.count("offered"),
                    states.count("assigned"),
                    states.count("failed"),
                    max(now - oldest, 0) / 1e6,
                )
            )
        return tuple(counts)

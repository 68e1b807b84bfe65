"""How attempts at an operation end, and who is told: everybody, the next one, or nobody."""

from __future__ import annotations

from holdfast.core.family import LARGEST_ERROR, MOST_FAILURES, Failure, Outcome
from holdfast.core.requests import Done, Failed, Signal
from holdfast.stores.memory.recording import Recording
from holdfast.stores.memory.state import Ended, Hold, Lock, Post, Shard


class Operations(Recording):
    """See the module. All is called with the shard's mutex held."""

    def _succeed(self, shard: Shard, lock: Lock, hold: Hold, outcome: Outcome, now: int, post: Post) -> int:
        """Give the result to all who wait, and maybe to those who come later; return how many wait."""
        told = self._end_queue(shard, lock, "done", Done(outcome.text, hold.token), now, post)
        lock.forget_failures()
        if outcome.keep:
            lock.keep(hold, outcome.text, outcome.keep, now)
        return told

    def _fail(self, shard: Shard, lock: Lock, hold: Hold, error: str, now: int, post: Post) -> int:
        """Note a failure, and give up if it was the last allowed; return how many are told that."""
        error = error[:LARGEST_ERROR]
        self._record(
            shard, lock, "failed", now, owner=hold.owner, token=hold.token, reason=error, operation=True
        )
        failure = Failure(hold.owner, hold.client.host, hold.client.pid, hold.token, error)
        lock.failed += 1
        lock.failures = (*lock.failures, failure)[-MOST_FAILURES:]
        told = 0
        if 0 < hold.terms.max_attempts <= lock.failed:
            told = self._end_queue(shard, lock, "failed", Failed(lock.failures), now, post)
            lock.forget_failures()
        elif all(ticket.end <= now for ticket in lock.tickets.values()):
            lock.forget_failures()  # nobody waits: whoever comes next begins anew
        return told

    def _end_queue(
        self, shard: Shard, lock: Lock, why: str, answer: Done | Failed, now: int, post: Post
    ) -> int:
        """Empty the queue. Those who were alive in it are answered *answer* when they ask again."""
        told = 0
        instances: dict[str, None] = {}
        for attempt, ticket in list(lock.tickets.items()):
            if ticket.end > now:
                shard.ended[lock.key, attempt] = Ended(why, now, told=answer)
                instances[ticket.client.instance] = None
                told += 1
            del lock.tickets[attempt]
        post += [(instance, Signal("over", lock.key, "")) for instance in instances]
        return told

-- Every statement holdfast sends to PostgreSQL. Each can be pasted into a console.
--
-- :now is empty in production, and then the database's clock decides; tests pass a time. It is clock_timestamp(), read
-- after a lock was waited for: now() stands still in a transaction, and a lease could be born with its end in the past.
-- Everything runs at READ COMMITTED.

-- name: acquire
-- The fast path: a row when granted, in one statement. It takes only a lock that is free with nobody waiting. No row:
-- the slow path. All fast paths are for plain terms, and keep away from locks with notes. The first NOT EXISTS keeps a
-- refusal from locking the row, which would hold up the holder's renewals. If somebody changes the row while we wait for
-- it, what was read here before is out of date: xmin tells.
INSERT INTO holdfast_locks AS l
       (lock_key, token, owner, attempt, granted_at, expires_at, instance, host, pid)
SELECT :key::text, greatest((SELECT token_floor + 1 FROM holdfast_meta WHERE id = 1), t.now),
       :owner::text, :attempt::text, t.now, t.now + :ttl, :instance::text, :host::text, :pid::bigint
  FROM (SELECT coalesce(:now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now) AS t
 WHERE NOT EXISTS (SELECT FROM holdfast_locks WHERE lock_key = :key
                      AND (owner IS NOT NULL OR waiters > 0 OR notes IS NOT NULL))
   AND NOT EXISTS (SELECT FROM holdfast_ended WHERE lock_key = :key AND attempt = :attempt AND until_at > t.now)
    ON CONFLICT (lock_key) DO UPDATE
   SET token      = greatest(l.token + 1, (SELECT token_floor + 1 FROM holdfast_meta WHERE id = 1 AND l.token = 0),
                             coalesce(:now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)),
       granted_at = coalesce(:now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint),
       expires_at = coalesce(:now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) + :ttl,
       owner = :owner, attempt = :attempt, claimed = 1, instance = :instance, host = :host, pid = :pid
 WHERE l.owner IS NULL AND l.waiters = 0 AND l.last_attempt IS DISTINCT FROM :attempt AND l.notes IS NULL
   AND l.xmin = (SELECT s.xmin FROM holdfast_locks AS s WHERE s.lock_key = :key)
RETURNING l.token;

-- name: claim
-- The fast path of asking again for what was handed to us: a row if it still is ours, and for long (:long; else the
-- head of the queue may have to be told). No row: the slow path.
UPDATE holdfast_locks
   SET expires_at = CASE claimed WHEN 0 THEN coalesce(:now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) + :ttl
                                 ELSE greatest(expires_at, coalesce(:now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) + :ttl) END,
       claimed = 1, instance = :instance, host = :host, pid = :pid
 WHERE lock_key = :key AND attempt = :attempt AND expires_at > coalesce(:now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
   AND (claimed = 1 OR :long::boolean) AND notes IS NULL
RETURNING token, expires_at - coalesce(:now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);

-- name: release
-- The fast path: a row when the only hold was released and nobody waits. No row: the slow path. It need not reach the
-- disk at once: to lose it in a crash only delays the next holder, until the lease's end.
UPDATE holdfast_locks
   SET owner = NULL, attempt = NULL, last_attempt = attempt,
       expires_at = coalesce(:now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
 WHERE lock_key = :key AND attempt = :attempt AND token = :token
   AND waiters = 0
   AND expires_at > coalesce(:now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
   AND notes IS NULL
   AND set_config('synchronous_commit', 'off', true) IS NOT NULL
RETURNING token;

-- name: join_queue
-- The fast path of joining a queue, behind lock_row in one transaction and one round trip: a row with the place and the
-- holder. Only where there is nothing to settle: a plain lease and the head of the queue are alive. No row: the slow
-- path. It need not reach the disk at once: to lose it in a crash costs the place in the queue. is_waited_for comes
-- behind its commit: two who join each other's queues at once would not see each other before.
WITH l AS (
    UPDATE holdfast_locks
       SET waiters = waiters + 1, next_ticket = next_ticket + 1
     WHERE lock_key = :key AND owner <> :owner AND holds = 0 AND attempt IS NOT NULL AND notes IS NULL
       AND expires_at > coalesce(:now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
       AND last_attempt IS DISTINCT FROM :attempt
       AND set_config('synchronous_commit', 'off', true) IS NOT NULL
       AND NOT EXISTS (SELECT FROM holdfast_ended WHERE lock_key = :key AND attempt = :attempt
                          AND until_at > coalesce(:now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint))
       AND NOT EXISTS (SELECT FROM holdfast_tickets WHERE lock_key = :key AND attempt = :attempt)
       AND coalesce((SELECT expires_at FROM holdfast_tickets WHERE lock_key = :key ORDER BY number LIMIT 1)
                    > coalesce(:now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint), true)
    RETURNING owner, host, pid, token, granted_at, claimed, expires_at, waiters, next_ticket - 1 AS number,
              coalesce(:now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now),
t AS (
    INSERT INTO holdfast_tickets (lock_key, number, attempt, owner, instance, host, pid, claim, queued_at, expires_at)
    SELECT :key, l.number, :attempt, :owner, :instance::text, :host::text, :pid::bigint, :claim::bigint,
           l.now, l.now + :patience::bigint FROM l)
SELECT owner, host, pid, token, granted_at, claimed, expires_at, waiters, now FROM l;

-- name: hand_over
-- The fast path of a release with somebody waiting, behind lock_row in one transaction: a row with the winner. Only where
-- there is nothing else to settle or to tell: one hold, both heads of the queue alive, the first on plain terms, no
-- fence. No row: the slow path.
WITH h AS (
    SELECT number, attempt, owner, instance, host, pid, claim, expires_at, terms
      FROM holdfast_tickets WHERE lock_key = :key ORDER BY number LIMIT 2),
one AS (SELECT * FROM h ORDER BY number LIMIT 1),
two AS (SELECT * FROM h ORDER BY number OFFSET 1),
free AS (SELECT 1 FROM holdfast_locks WHERE lock_key = :key FOR UPDATE SKIP LOCKED),
l AS (
    UPDATE holdfast_locks AS l
       SET token = greatest(l.token + 1, coalesce(:now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)),
           owner = one.owner, attempt = one.attempt, claimed = 0, last_attempt = :attempt,
           granted_at = coalesce(:now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint),
           expires_at = coalesce(:now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) + one.claim,
           instance = one.instance, host = one.host, pid = one.pid, waiters = l.waiters - 1
      FROM one
     WHERE l.lock_key = :key AND l.attempt = :attempt AND l.token = :token AND l.holds = 0
       AND l.notes IS NULL AND one.terms IS NULL
       AND l.expires_at > coalesce(:now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
       AND one.expires_at > coalesce(:now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
       AND NOT EXISTS (SELECT FROM two WHERE two.expires_at <= coalesce(:now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
                          OR two.claim > one.claim)
       AND EXISTS (SELECT FROM free)
       AND set_config('synchronous_commit', 'off', true) IS NOT NULL
    RETURNING one.number, l.owner, l.instance, l.attempt),
t AS (
    DELETE FROM holdfast_tickets AS t USING l WHERE t.lock_key = :key AND t.number = l.number)
SELECT owner, instance, attempt FROM l;

-- name: notify_winner
-- Behind the commit of hand_over, in the same round trip: tell whoever was handed the lock, unless it is us.
SELECT pg_notify(left(:channel || split_part(instance, '/', 1), 63),
                 concat_ws(chr(10), 'granted', lock_key, attempt, '0', split_part(instance, '/', 2)))
  FROM holdfast_locks
 WHERE lock_key = :key AND claimed = 0 AND attempt IS NOT NULL AND split_part(instance, '/', 1) NOT IN (:instance, '')
   AND set_config('synchronous_commit', 'off', true) IS NOT NULL;

-- name: now
SELECT coalesce(:now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);

-- name: begin
BEGIN ISOLATION LEVEL READ COMMITTED;

-- name: commit
COMMIT;

-- name: commit_lazily
SET LOCAL synchronous_commit = off;

-- name: rollback
ROLLBACK;

-- name: notify
-- A transaction of its own, which nobody needs on the disk: waiting for that would only delay who is to be woken.
SELECT pg_notify(:channel, :payload) WHERE set_config('synchronous_commit', 'off', true) IS NOT NULL;

-- name: lock_row
-- Every slow path begins with this. NO KEY: a fence of the holder may go on.
SELECT 1 FROM holdfast_locks WHERE lock_key = :key FOR NO KEY UPDATE;

-- name: probe_pin
-- No row while a transaction fences the lease: then the token may not be changed.
SELECT 1 FROM holdfast_locks WHERE lock_key = :key FOR UPDATE SKIP LOCKED;

-- name: ensure_lock
-- A row to be locked, for a key that was never granted.
INSERT INTO holdfast_locks (lock_key, token, expires_at, granted_at, instance, host, pid)
VALUES (:key, 0, coalesce(:now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint), 0, '', '', 0)
    ON CONFLICT (lock_key) DO NOTHING;

-- name: read_lock
-- Always one row: the time; whether a transaction pins the lease (see probe_pin); the floor of tokens; the lock, if
-- there is one; how the attempt ended; its ticket; the winner of a hand-over, and who is head after it.
SELECT t.now, false, (SELECT token_floor FROM holdfast_meta WHERE id = 1),
       l.token, l.owner, l.attempt, l.claimed, l.expires_at, l.granted_at, l.instance, l.host, l.pid,
       l.last_attempt, l.holds, l.waiters, l.next_ticket,
       coalesce(l.events, (SELECT max(number) FROM holdfast_history WHERE lock_key = :key), 0), l.notes,
       e.why, e.broken_by, e.reason,
       mine.number, mine.owner,
       one.number, one.attempt, one.owner, one.instance, one.host, one.pid, one.claim, one.expires_at, one.terms,
       two.number, two.attempt, two.owner, two.instance, two.host, two.pid, two.claim, two.expires_at, two.terms
  FROM (SELECT coalesce(:now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now) AS t
  LEFT JOIN holdfast_locks AS l ON l.lock_key = :key
  LEFT JOIN holdfast_ended AS e ON e.lock_key = :key AND e.attempt = :attempt AND e.until_at > t.now
  LEFT JOIN holdfast_tickets AS mine ON l.waiters > 0 AND mine.lock_key = :key AND mine.attempt = :attempt
  LEFT JOIN holdfast_tickets AS one ON l.waiters > 0 AND one.lock_key = :key
        AND one.number = (SELECT min(number) FROM holdfast_tickets WHERE lock_key = :key)
  LEFT JOIN holdfast_tickets AS two ON l.waiters > 1 AND two.lock_key = :key
        AND two.number = (SELECT min(number) FROM holdfast_tickets WHERE lock_key = :key AND number > one.number);

-- name: write_lock
UPDATE holdfast_locks
   SET token = :token, owner = :owner, attempt = :attempt, claimed = :claimed, expires_at = :expires_at,
       granted_at = :granted_at, instance = :instance, host = :host, pid = :pid, last_attempt = :last_attempt,
       holds = :holds, waiters = :waiters, next_ticket = :next_ticket, events = :events, notes = :notes
 WHERE lock_key = :key;

-- name: write_ended
INSERT INTO holdfast_ended (lock_key, attempt, why, broken_by, reason, until_at)
VALUES (:key, :attempt, :why, :by, :reason, :until_at)
    ON CONFLICT (lock_key, attempt) DO UPDATE
   SET why = excluded.why, broken_by = excluded.broken_by, reason = excluded.reason, until_at = excluded.until_at;

-- name: read_holds
SELECT attempt, expires_at, claimed, owner, token, terms, granted_at, instance, host, pid
  FROM holdfast_holds WHERE lock_key = :key ORDER BY token, granted_at, attempt;

-- name: read_holds_of
-- The same of many keys.
SELECT h.lock_key, h.attempt, h.expires_at, h.claimed, h.owner, h.token, h.terms, h.granted_at, h.instance, h.host, h.pid
  FROM json_array_elements_text(:keys::json) AS k(key),
       LATERAL (SELECT * FROM holdfast_holds WHERE lock_key = k.key COLLATE "C" OFFSET 0) AS h
 ORDER BY h.lock_key, h.token, h.granted_at, h.attempt;

-- name: write_hold
INSERT INTO holdfast_holds
       (lock_key, attempt, owner, token, terms, claimed, expires_at, granted_at, instance, host, pid)
VALUES (:key, :attempt, :owner, :token, :terms, :claimed, :expires_at, :granted_at, :instance, :host, :pid)
    ON CONFLICT (lock_key, attempt) DO UPDATE
   SET terms = excluded.terms, claimed = excluded.claimed, expires_at = excluded.expires_at,
       instance = excluded.instance, host = excluded.host, pid = excluded.pid;

-- name: delete_hold
DELETE FROM holdfast_holds WHERE lock_key = :key AND attempt = :attempt;

-- name: delete_holds
DELETE FROM holdfast_holds WHERE lock_key = :key;

-- name: queue_head
SELECT number, attempt, owner, instance, host, pid, claim, expires_at, terms
  FROM holdfast_tickets WHERE lock_key = :key ORDER BY number LIMIT 2;

-- name: queue
INSERT INTO holdfast_tickets
       (lock_key, number, attempt, owner, instance, host, pid, claim, queued_at, expires_at, terms)
VALUES (:key, :number, :attempt, :owner, :instance, :host, :pid, :claim, :queued_at, :expires_at, :terms);

-- name: find_ticket
SELECT instance, terms FROM holdfast_tickets WHERE lock_key = :key AND attempt = :attempt;

-- name: delete_ticket
DELETE FROM holdfast_tickets WHERE lock_key = :key AND number = :number;

-- name: live_instances
-- Where those who wait can be told.
SELECT instance, count(*) FROM holdfast_tickets WHERE lock_key = :key AND expires_at > :now GROUP BY instance;

-- name: end_tickets
INSERT INTO holdfast_ended (lock_key, attempt, why, reason, until_at)
SELECT lock_key, attempt, :why::text, :reason::text, :until_at::bigint
  FROM holdfast_tickets WHERE lock_key = :key AND expires_at > :now
    ON CONFLICT (lock_key, attempt) DO UPDATE
   SET why = excluded.why, broken_by = NULL, reason = excluded.reason, until_at = excluded.until_at;

-- name: delete_tickets
DELETE FROM holdfast_tickets WHERE lock_key = :key;

-- name: all_tickets
SELECT number, attempt, instance, terms FROM holdfast_tickets WHERE lock_key = :key ORDER BY number;

-- name: write_outcome
INSERT INTO holdfast_outcomes (lock_key, token, succeeded, text, until_at)
VALUES (:key, :token, :succeeded::text::boolean, :text, :until_at)
    ON CONFLICT (lock_key, token) DO UPDATE
   SET succeeded = excluded.succeeded, text = excluded.text, until_at = excluded.until_at;

-- name: read_outcome
SELECT succeeded, text FROM holdfast_outcomes WHERE lock_key = :key AND token = :token;

-- name: is_waited_for
-- A row if an owner has anything that others wait for. Subqueries and no joins here and below: a join could be planned
-- as a walk through all locks while they are few, and be kept.
SELECT 1 FROM holdfast_locks WHERE owner = :owner AND coalesce(owner, '') <> '' AND waiters > 0
 UNION ALL
SELECT 1 FROM holdfast_holds AS h
 WHERE h.owner = :owner AND (SELECT waiters FROM holdfast_locks AS l WHERE l.lock_key = h.lock_key) > 0
 LIMIT 1;

-- name: wanted_by
SELECT DISTINCT t.lock_key
  FROM json_array_elements_text(:owners::json) AS o(owner),
       LATERAL (SELECT lock_key FROM holdfast_tickets WHERE owner = o.owner COLLATE "C" OFFSET 0) AS t;

-- name: holds_at
SELECT l.lock_key, l.owner, l.attempt, NULL::text, l.token
  FROM json_array_elements_text(:keys::json) AS k(key),
       LATERAL (SELECT lock_key, owner, attempt, holds, expires_at, token
                  FROM holdfast_locks WHERE lock_key = k.key COLLATE "C" OFFSET 0) AS l
 WHERE l.holds = 0 AND l.owner IS NOT NULL AND l.attempt IS NOT NULL
   AND l.expires_at > coalesce(:now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
 UNION ALL
SELECT h.lock_key, h.owner, h.attempt, h.terms, h.token
  FROM json_array_elements_text(:keys::json) AS k(key),
       LATERAL (SELECT lock_key, owner, attempt, terms, expires_at, token
                  FROM holdfast_holds WHERE lock_key = k.key COLLATE "C" OFFSET 0) AS h
 WHERE h.expires_at > coalesce(:now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);

-- name: notes_at
SELECT l.lock_key, l.notes
  FROM json_array_elements_text(:keys::json) AS k(key),
       LATERAL (SELECT lock_key, notes FROM holdfast_locks WHERE lock_key = k.key COLLATE "C" OFFSET 0) AS l;

-- name: tickets_at
SELECT t.lock_key, t.owner, t.attempt, t.terms, t.queued_at, t.host, t.pid
  FROM json_array_elements_text(:keys::json) AS k(key),
       LATERAL (SELECT * FROM holdfast_tickets WHERE lock_key = k.key COLLATE "C" OFFSET 0) AS t
 WHERE t.expires_at > coalesce(:now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
 ORDER BY t.lock_key, t.number;

-- name: tickets_before
SELECT count(*) FROM holdfast_tickets WHERE lock_key = :key AND number < :number;

-- name: refresh_ticket
-- Asking again says where we can be reached now.
UPDATE holdfast_tickets
   SET expires_at = greatest(expires_at, :expires_at), instance = :instance, host = :host, pid = :pid
 WHERE lock_key = :key AND attempt = :attempt;

-- name: renew
-- A whole batch: the places of those that were renewed. Matches only what is ours, alive, and not held for longer
-- already. A row that somebody has locked is skipped, and asked for by itself: it must not hold up all others.
WITH due AS (
    SELECT a.place, a.ttl, l.lock_key
      FROM json_to_recordset(:leases::json) AS a(place integer, key text, attempt text, token bigint, ttl bigint)
      JOIN holdfast_locks AS l ON l.lock_key = a.key COLLATE "C"
     WHERE l.attempt = a.attempt COLLATE "C" AND l.token = a.token
       AND l.expires_at > coalesce(:now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
       AND l.expires_at <= coalesce(:now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) + a.ttl
       FOR NO KEY UPDATE OF l SKIP LOCKED)
UPDATE holdfast_locks AS l
   SET expires_at = coalesce(:now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) + due.ttl
  FROM due
 WHERE l.lock_key = due.lock_key
   AND l.expires_at > coalesce(:now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
RETURNING due.place;

-- name: waited_for
-- Locks and the tickets at their heads: what has to be settled, and what their waiters want to know.
SELECT l.lock_key, coalesce(:now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint),
       l.owner, l.expires_at, l.holds, t.attempt, t.expires_at, l.notes
  FROM json_array_elements_text(:keys::json) AS k(key)
  JOIN holdfast_locks AS l ON l.lock_key = k.key COLLATE "C"
  LEFT JOIN LATERAL (SELECT attempt, expires_at FROM holdfast_tickets
                      WHERE lock_key = l.lock_key ORDER BY number LIMIT 1) AS t ON true;

-- name: refresh_tickets
-- A whole batch: the places of those that are still there.
UPDATE holdfast_tickets AS t
   SET expires_at = greatest(t.expires_at, coalesce(:now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) + a.patience)
  FROM json_to_recordset(:tickets::json) AS a(place integer, key text, attempt text, patience bigint)
 WHERE t.lock_key = a.key COLLATE "C" AND t.attempt = a.attempt COLLATE "C"
RETURNING a.place;

-- name: fence
-- In the caller's transaction, to its end: renewing and queueing pass, a grant waits, because it changes the token.
SELECT 1 FROM holdfast_locks WHERE lock_key = :key AND token = :token FOR KEY SHARE;

-- name: fence_seen
SELECT 1 FROM holdfast_locks WHERE lock_key = :key AND token = :token;

-- name: fence_alive
SELECT 1 FROM holdfast_locks AS l
  LEFT JOIN holdfast_holds AS h ON l.holds > 0 AND h.lock_key = l.lock_key AND h.attempt = :attempt
 WHERE l.lock_key = :key AND l.token = :token
   AND CASE l.holds WHEN 0 THEN l.attempt = :attempt ELSE h.attempt IS NOT NULL END
   AND coalesce(h.terms, '') NOT LIKE '%"mode"%'
   AND coalesce(h.expires_at, l.expires_at) > coalesce(:now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);

-- name: store_id
SELECT store_id FROM holdfast_meta WHERE id = 1;

-- name: inspect
-- A row that was made only to be locked is no lock; one whose capacity was said is.
SELECT lock_key, token, owner, claimed, expires_at, granted_at, host, pid, holds, waiters, notes
  FROM holdfast_locks WHERE lock_key = :key AND (token > 0 OR notes IS NOT NULL);

-- name: waiters
SELECT owner, host, pid, queued_at FROM holdfast_tickets WHERE lock_key = :key ORDER BY number LIMIT :limit;

-- name: list
-- :from_key is the later of the prefix and the key to go on after. :to_key ends the prefix, if anything does.
SELECT lock_key, token, owner, claimed, expires_at, granted_at, host, pid, holds, waiters, notes
  FROM holdfast_locks
 WHERE lock_key >= :from_key AND (:to_key::text IS NULL OR lock_key < :to_key) AND lock_key > :after
   AND (token > 0 OR notes IS NOT NULL)
   AND CASE :state::text WHEN 'held' THEN owner IS NOT NULL AND expires_at > :now
                         WHEN 'expired' THEN (attempt IS NOT NULL OR holds > 0) AND expires_at <= :now
                         WHEN 'free' THEN owner IS NULL OR (attempt IS NULL AND holds = 0 AND expires_at <= :now)
                         ELSE true END
 ORDER BY lock_key LIMIT :limit;

-- name: list_by_owner
-- Of an owner whose lease is not the first of its key, only the holds know. Each key comes once, by its first hold there.
(SELECT lock_key, token, owner, claimed, expires_at, granted_at, host, pid, holds, waiters, notes
  FROM holdfast_locks
 WHERE owner = :owner AND coalesce(owner, '') <> ''
   AND (attempt IS NOT NULL OR holds > 0 OR expires_at > :now)
   AND lock_key >= :from_key AND (:to_key::text IS NULL OR lock_key < :to_key) AND lock_key > :after
   AND CASE :state::text WHEN 'held' THEN expires_at > :now
                         WHEN 'expired' THEN expires_at <= :now
                         WHEN 'free' THEN false
                         ELSE true END
 ORDER BY lock_key LIMIT :limit)
 UNION ALL
(SELECT l.*
  FROM holdfast_holds AS h,
       LATERAL (SELECT lock_key, token, owner, claimed, expires_at, granted_at, host, pid, holds, waiters, notes
                  FROM holdfast_locks WHERE lock_key = h.lock_key OFFSET 0) AS l
 WHERE h.owner = :owner AND l.owner <> :owner
   AND h.lock_key >= :from_key AND (:to_key::text IS NULL OR h.lock_key < :to_key) AND h.lock_key > :after
   AND h.attempt = (SELECT min(attempt) FROM holdfast_holds WHERE lock_key = h.lock_key AND owner = :owner)
   AND CASE :state::text WHEN 'held' THEN l.expires_at > :now
                         WHEN 'expired' THEN l.expires_at <= :now
                         WHEN 'free' THEN false
                         ELSE true END
 ORDER BY h.lock_key LIMIT :limit)
 ORDER BY lock_key LIMIT :limit;

-- name: write_event
INSERT INTO holdfast_history (lock_key, number, kind, at, token, owner, caused_by, reason)
VALUES (:key, :number, :kind, :at, :token, :owner, :by, :reason);

-- name: history
SELECT number, kind, at, token, owner, caused_by, reason, feed
  FROM holdfast_history WHERE lock_key = :key ORDER BY number DESC LIMIT :limit;

-- name: feed_lock
SELECT last FROM holdfast_feed WHERE id = 1 FOR UPDATE;

-- name: feed_last
SELECT last FROM holdfast_feed WHERE id = 1;

-- name: feed_new
-- Events that have no place yet.
SELECT lock_key, number, at FROM holdfast_history WHERE feed IS NULL ORDER BY at, lock_key, number LIMIT :limit;

-- name: feed_place
UPDATE holdfast_history SET feed = :feed WHERE lock_key = :key AND number = :number AND at = :at;

-- name: feed_end
UPDATE holdfast_feed SET last = :last WHERE id = 1;

-- name: feed_read
SELECT feed, lock_key, number, kind, at, token, owner, caused_by, reason
  FROM holdfast_history WHERE feed > :after::bigint ORDER BY feed LIMIT :limit;

-- name: sweep_expired
SELECT lock_key FROM holdfast_locks
 WHERE coalesce(owner, '') <> '' AND expires_at <= :now ORDER BY expires_at LIMIT :limit;

-- name: sweep_walk
SELECT lock_key, token, owner IS NULL AND expires_at <= :idle_since, waiters
  FROM holdfast_locks WHERE lock_key > :after AND (token > 0 OR notes IS NOT NULL) ORDER BY lock_key LIMIT :limit;

-- name: dead_tickets
SELECT number FROM holdfast_tickets WHERE lock_key = :key AND expires_at <= :now ORDER BY number LIMIT :limit;

-- name: raise_floor
-- Committed before the rows are deleted: whoever inserts one of them anew must find it.
UPDATE holdfast_meta SET token_floor = :token WHERE id = 1 AND token_floor < :token;

-- name: delete_idle
DELETE FROM holdfast_locks
 WHERE lock_key IN (SELECT l.lock_key
                      FROM json_array_elements_text(:keys::json) AS k(key)
                      JOIN holdfast_locks AS l ON l.lock_key = k.key COLLATE "C"
                     WHERE l.owner IS NULL AND l.waiters = 0 AND l.expires_at <= :idle_since
                       FOR UPDATE OF l SKIP LOCKED)
RETURNING 1;

-- name: delete_never_granted
-- Rows that were made only to be locked, up to where the sweep has come.
DELETE FROM holdfast_locks
 WHERE lock_key IN (SELECT lock_key FROM holdfast_locks
                     WHERE lock_key > :after AND (:upto::text IS NULL OR lock_key <= :upto)
                       AND token = 0 AND notes IS NULL AND waiters = 0 AND expires_at <= :idle_since
                     LIMIT :limit FOR UPDATE SKIP LOCKED);

-- name: delete_ended
DELETE FROM holdfast_ended
 WHERE ctid = ANY (ARRAY (SELECT ctid FROM holdfast_ended
                           WHERE until_at <= :now ORDER BY until_at LIMIT :limit FOR UPDATE SKIP LOCKED))
RETURNING 1;

-- name: delete_outcomes
DELETE FROM holdfast_outcomes
 WHERE ctid = ANY (ARRAY (SELECT ctid FROM holdfast_outcomes
                           WHERE until_at <= :now ORDER BY until_at LIMIT :limit FOR UPDATE SKIP LOCKED))
RETURNING 1;

-- name: delete_history
-- What is in no week's partition; those are dropped as a whole.
DELETE FROM holdfast_history_rest
 WHERE ctid = ANY (ARRAY (SELECT ctid FROM holdfast_history_rest
                           WHERE at <= :before ORDER BY at LIMIT :limit FOR UPDATE SKIP LOCKED))
RETURNING 1;

-- name: grant_access
-- What was granted under that id before stays as it is, and is the answer.
INSERT INTO holdfast_access (id, name, digest, rights, created_at, expires_at)
SELECT :id::text, :name::text, :digest::text, :rights::text, t.now, t.now + :ttl::bigint
  FROM (SELECT coalesce(:now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now) AS t
    ON CONFLICT (id) DO UPDATE SET id = excluded.id
RETURNING id, name, digest, rights, created_at, expires_at;

-- name: revoke_access
DELETE FROM holdfast_access WHERE id = :id RETURNING id, name, digest, rights, created_at, expires_at;

-- name: list_access
SELECT id, name, digest, rights, created_at, expires_at FROM holdfast_access
 WHERE expires_at IS NULL OR expires_at > coalesce(:now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
 ORDER BY id;

-- name: delete_access
DELETE FROM holdfast_access
 WHERE ctid = ANY (ARRAY (SELECT ctid FROM holdfast_access
                           WHERE expires_at <= :now ORDER BY expires_at LIMIT :limit FOR UPDATE SKIP LOCKED));

-- name: count_held
SELECT count(*) FROM holdfast_locks
 WHERE coalesce(owner, '') <> '' AND expires_at > coalesce(:now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);

-- name: schema_version
SELECT version FROM holdfast_meta WHERE id = 1;

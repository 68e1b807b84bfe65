-- What holdfast sends to PostgreSQL, beside the statements in stores/sql/statements.sql. To paste one into a console,
-- put in what :clock stands for (below), and values for the other parameters. With that put in, this prints one:
-- python -m holdfast.stores.sql postgres acquire
--
-- :now is empty in production, and then the database's clock decides; tests pass a time. It is clock_timestamp(), read
-- after a lock was waited for: now() stands still in a transaction, and a lease could be born with its end in the past.
-- Everything runs at READ COMMITTED.
--
-- :clock = coalesce(:now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
-- :each_clock = coalesce(k.now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
--
-- A commit that waits for a standby may give that up, with a warning that comes too late for what is sent along with it.
-- :unwatched = current_setting('synchronous_standby_names') = ''

-- name: acquire
-- The fast path: a row when granted, in one statement. It takes only a lock that is free with nobody waiting. No row:
-- the slow path. All fast paths are for plain terms, and keep away from locks with notes. The first NOT EXISTS keeps a
-- refusal from locking the row, which would hold up the holder's renewals. If somebody changes the row while we wait for
-- it, what was read here before is out of date: xmin tells.
INSERT INTO holdfast_locks AS l
       (lock_key, token, owner, attempt, granted_at, expires_at, instance, host, pid)
SELECT :key::text, greatest((SELECT token_floor + 1 FROM holdfast_meta WHERE id = 1), t.now),
       :owner::text, :attempt::text, t.now, t.now + :ttl, :instance::text, :host::text, :pid::bigint
  FROM (SELECT :clock AS now) AS t
 WHERE NOT EXISTS (SELECT FROM holdfast_locks WHERE lock_key = :key
                      AND (owner IS NOT NULL OR waiters > 0 OR notes IS NOT NULL))
   AND NOT EXISTS (SELECT FROM holdfast_ended WHERE lock_key = :key AND attempt = :attempt AND until_at > t.now)
    ON CONFLICT (lock_key) DO UPDATE
   SET token      = greatest(l.token + 1, (SELECT token_floor + 1 FROM holdfast_meta WHERE id = 1 AND l.token = 0),
                             :clock),
       granted_at = :clock,
       expires_at = :clock + :ttl,
       owner = :owner, attempt = :attempt, claimed = 1, instance = :instance, host = :host, pid = :pid
 WHERE l.owner IS NULL AND l.waiters = 0 AND l.last_attempt IS DISTINCT FROM :attempt AND l.notes IS NULL
   AND l.xmin = (SELECT s.xmin FROM holdfast_locks AS s WHERE s.lock_key = :key)
RETURNING l.token;

-- name: claim
-- The fast path of asking again for what was handed to us: a row if it still is ours, and for long (:long; else the
-- head of the queue may have to be told). No row: the slow path.
UPDATE holdfast_locks
   SET expires_at = CASE claimed WHEN 0 THEN :clock + :ttl
                                 ELSE greatest(expires_at, :clock + :ttl) END,
       claimed = 1, instance = :instance, host = :host, pid = :pid
 WHERE lock_key = :key AND attempt = :attempt AND expires_at > :clock
   AND (claimed = 1 OR :long::boolean) AND notes IS NULL
RETURNING token, expires_at - :clock;

-- name: release
-- The fast path: a row when the only hold was released and nobody waits. No row: the slow path. It need not reach the
-- disk at once: to lose it in a crash only delays the next holder, until the lease's end.
UPDATE holdfast_locks
   SET owner = NULL, attempt = NULL, last_attempt = attempt, claimed = 1,
       expires_at = :clock
 WHERE lock_key = :key AND attempt = :attempt AND token = :token
   AND waiters = 0
   AND expires_at > :clock
   AND notes IS NULL
   AND set_config('synchronous_commit', 'off', true) IS NOT NULL
RETURNING token;

-- name: acquire_many
-- The fast path for many keys, each once: a row for each that was granted. It waits for no row lock: what somebody is at,
-- or fences, is left to the ordinary way, and holds up nobody here. xmin tells of a row that was changed after we began:
-- an attempt may have been ended by that. New rows are made in the order of their keys: two who make the same ones would
-- wait for each other. The clock is read after such a wait.
WITH k AS MATERIALIZED (
    SELECT k.key COLLATE "C" AS key, k.attempt COLLATE "C" AS attempt, k.owner, k.ttl, k.instance, k.host, k.pid, k.now,
           :each_clock AS at,
           (SELECT xmin FROM holdfast_locks WHERE lock_key = k.key COLLATE "C") AS known,
           (SELECT max(until_at) FROM holdfast_ended
             WHERE lock_key = k.key COLLATE "C" AND attempt = k.attempt COLLATE "C") AS ended
      FROM json_to_recordset(:acquires::json) AS k(key text, attempt text, owner text, ttl bigint, instance text, host text,
                                                   pid bigint, now bigint)),
free AS MATERIALIZED (
    SELECT k.*
      FROM k, LATERAL (SELECT xmin AS version FROM holdfast_locks
                        WHERE lock_key = k.key AND owner IS NULL AND waiters = 0 AND notes IS NULL
                          AND last_attempt IS DISTINCT FROM k.attempt
                          FOR UPDATE SKIP LOCKED) AS l
     WHERE k.known IS NOT NULL AND l.version = k.known AND coalesce(k.ended, 0) <= k.at),
old AS (
    UPDATE holdfast_locks AS l
       SET token = greatest(l.token + 1, (SELECT token_floor + 1 FROM holdfast_meta WHERE id = 1 AND l.token = 0), free.at),
           owner = free.owner, attempt = free.attempt, claimed = 1, granted_at = free.at, expires_at = free.at + free.ttl,
           instance = free.instance, host = free.host, pid = free.pid
      FROM free WHERE l.lock_key = free.key AND l.lock_key = ANY (ARRAY (SELECT key FROM free))
    RETURNING l.lock_key, l.token),
new AS (
    INSERT INTO holdfast_locks AS l (lock_key, token, owner, attempt, granted_at, expires_at, instance, host, pid)
    SELECT k.key, greatest((SELECT token_floor + 1 FROM holdfast_meta WHERE id = 1), :each_clock),
           k.owner, k.attempt, :each_clock, :each_clock + k.ttl, k.instance, k.host, k.pid
      FROM k WHERE k.known IS NULL AND coalesce(k.ended, 0) <= k.at
     ORDER BY k.key
        ON CONFLICT (lock_key) DO NOTHING
    RETURNING l.lock_key, l.token)
SELECT lock_key, token FROM old UNION ALL SELECT lock_key, token FROM new;

-- name: release_many
-- The fast path for many keys, each once: a row for each that was released. It waits for no row lock either. Only if
-- nothing else is in the same transaction may that reach the disk later (:lazily): a grant must not.
WITH k AS MATERIALIZED (
    SELECT k.key COLLATE "C" AS key, k.attempt COLLATE "C" AS attempt, k.token,
           :each_clock AS now
      FROM json_to_recordset(:releases::json) AS k(key text, attempt text, token bigint, now bigint)),
held AS MATERIALIZED (
    SELECT k.*
      FROM k, LATERAL (SELECT FROM holdfast_locks
                        WHERE lock_key = k.key AND attempt = k.attempt AND token = k.token AND waiters = 0
                          AND expires_at > k.now AND notes IS NULL
                          FOR NO KEY UPDATE SKIP LOCKED) AS l)
UPDATE holdfast_locks AS l
   SET owner = NULL, attempt = NULL, last_attempt = l.attempt, claimed = 1, expires_at = held.now
  FROM held WHERE l.lock_key = held.key AND l.lock_key = ANY (ARRAY (SELECT key FROM held))
   AND (NOT :lazily::boolean OR set_config('synchronous_commit', 'off', true) IS NOT NULL)
RETURNING l.lock_key;

-- name: join_queue
-- The fast path of joining a queue: a row with the place and the holder, and whether the owner holds anything at all: who
-- does not cannot have closed a circle. Only where there is nothing to settle: a plain lease and the head of the queue are
-- alive. No row: the slow path. Not durable: to lose it in a crash costs the place in the queue.
SELECT holder, its_host, its_pid, its_token, since, is_claimed, until_at, place, at, has_any
  FROM holdfast_join(:key, :attempt, :owner, :instance, :host, :pid, :claim, :patience, :now);

-- name: hand_over
-- The fast path of a release with somebody waiting: a row with the winner, who enters by it. So it reaches the disk. Only
-- where there is nothing else to settle or to tell: one hold, both heads of the queue alive, the first on plain terms, no
-- fence. No row: the slow path.
SELECT winner, its_instance, its_attempt, its_token, at, lasts
  FROM holdfast_hand_over(:key, :attempt, :token, :now);

-- name: notify_winner
-- After the commit of hand_over, in the same round trip: tell whoever was handed the lock, unless it is us. By itself and
-- lazily: a notification locks all others out until its commit. Who released last tells that it is our hand-over. The
-- winner enters by the token. If there are standbys that have to confirm, it is not told, and asks.
SELECT pg_notify(left(:channel || split_part(instance, '/', 1), 63),
                 concat_ws(chr(10), CASE WHEN :unwatched THEN concat_ws(' ', 'granted', token, granted_at) ELSE 'granted' END,
                           lock_key, attempt, CASE WHEN :unwatched THEN (expires_at - granted_at) / 1e6 ELSE 0 END,
                           split_part(instance, '/', 2)))
  FROM holdfast_locks
 WHERE lock_key = :key AND claimed = 0 AND last_attempt = :attempt AND attempt IS NOT NULL
   AND split_part(instance, '/', 1) NOT IN (:instance, '')
   AND set_config('synchronous_commit', 'off', true) IS NOT NULL;

-- name: join_full
-- The fast path of joining the queue of a semaphore that has no permit left: a row as of join_queue, about the lease that
-- was granted first. Only where each permit is held by itself, and there is nothing to settle. No row: the slow path.
SELECT holder, its_host, its_pid, its_token, since, is_claimed, until_at, place, at, has_any
  FROM holdfast_join_full(:key, :attempt, :owner, :instance, :host, :pid, :claim, :patience, :notes, :terms, :now);

-- name: pass_permit
-- The fast path of releasing one of several permits with somebody waiting for one: a row with the winner, who enters by
-- it, when the first permit ends, and who is head of the queue then. So it reaches the disk. Only where there is nothing
-- else to settle, and no fence. No row: the slow path.
SELECT winner, its_instance, its_attempt, its_token, at, lasts, first_end, next_instance, next_attempt, next_claim
  FROM holdfast_pass_permit(:key, :attempt, :token, :memory, :now);

-- name: notify_permit
-- After the commit of pass_permit, as notify_winner is after that of hand_over; and tell who is head of the queue, if the
-- first permit ends before its heartbeat can tell it. That it is our hand-over, its instant tells: it is when our release
-- was remembered.
WITH won AS MATERIALIZED (
    SELECT h.attempt, h.instance, h.token, h.granted_at, h.expires_at
      FROM (SELECT until_at - :memory AS at FROM holdfast_ended
             WHERE lock_key = :key AND attempt = :attempt AND why = 'released') AS e,
           LATERAL (SELECT * FROM holdfast_holds WHERE lock_key = :key OFFSET 0) AS h
     WHERE h.granted_at = e.at AND h.claimed = 0),
told AS (
    SELECT instance, CASE WHEN :unwatched THEN concat_ws(' ', 'granted', token, granted_at) ELSE 'granted' END AS kind,
           attempt, CASE WHEN :unwatched THEN (expires_at - granted_at) / 1e6 ELSE 0 END AS lasts
      FROM won
     UNION ALL
    SELECT t.instance, 'head', t.attempt, (f.ends - won.granted_at) / 1e6
      FROM won,
           LATERAL (SELECT * FROM holdfast_tickets WHERE lock_key = :key ORDER BY number LIMIT 1) AS t,
           LATERAL (SELECT min(expires_at) AS ends FROM holdfast_holds WHERE lock_key = :key) AS f
     WHERE 10 * (f.ends - won.granted_at) < 9 * t.claim)
SELECT pg_notify(left(:channel || split_part(told.instance, '/', 1), 63),
                 concat_ws(chr(10), kind, :key::text, attempt, lasts, split_part(instance, '/', 2)))
  FROM told
 WHERE split_part(instance, '/', 1) NOT IN (:instance, '')
   AND set_config('synchronous_commit', 'off', true) IS NOT NULL;

-- name: begin
BEGIN ISOLATION LEVEL READ COMMITTED;

-- name: commit_lazily
SET LOCAL synchronous_commit = off;

-- name: notify
-- A transaction of its own, which nobody needs on the disk: waiting for that would only delay who is to be woken.
-- :hint is the same without a token.
SELECT pg_notify(:channel, CASE WHEN :unwatched THEN :payload ELSE :hint END)
 WHERE set_config('synchronous_commit', 'off', true) IS NOT NULL;

-- name: notify_within
-- In a caller's transaction, with its commit, which stays as durable as it is. Not where there may be a second phase:
-- PREPARE TRANSACTION would fail.
SELECT pg_notify(:channel, :payload) WHERE current_setting('max_prepared_transactions') = '0';

-- name: expect_events
-- Who watches leaves its address here before it looks. It need not be on the disk. One that is there for long enough is
-- left as it is: if it was taken just now, this waits for that to end, and leaves it again.
INSERT INTO holdfast_ended AS e (lock_key, attempt, why, until_at)
SELECT :key::text, :attempt::text, 'watches', :clock + :lasts::bigint
 WHERE set_config('synchronous_commit', 'off', true) IS NOT NULL
    ON CONFLICT (lock_key, attempt) DO UPDATE SET until_at = excluded.until_at
 WHERE e.until_at < excluded.until_at - :lasts::bigint / 2;

-- name: notify_watchers
-- After the commit of an event: take the addresses of those who are to be told of the next one, and tell them. What
-- somebody else takes at this moment is skipped: whom they tell will find our event, too.
WITH told AS (DELETE FROM holdfast_ended
               WHERE ctid = ANY (ARRAY (SELECT ctid FROM holdfast_ended WHERE lock_key = :key
                                           FOR UPDATE SKIP LOCKED))
           RETURNING attempt)
SELECT pg_notify(left(:channel || split_part(attempt, '/', 1), 63),
                 concat_ws(chr(10), 'events', '', '', '0', split_part(attempt, '/', 2)))
  FROM told WHERE set_config('synchronous_commit', 'off', true) IS NOT NULL;

-- name: lock_row
-- Every slow path begins with this. NO KEY: a fence of the holder may go on.
SELECT 1 FROM holdfast_locks WHERE lock_key = :key FOR NO KEY UPDATE;

-- name: lock_row_at_once
-- The same without waiting: no row if somebody else has it.
SELECT 1 FROM holdfast_locks WHERE lock_key = :key FOR NO KEY UPDATE SKIP LOCKED;

-- name: probe_pin
-- No row while a transaction fences the lease: then the token may not be changed.
SELECT 1 FROM holdfast_locks WHERE lock_key = :key FOR UPDATE SKIP LOCKED;

-- name: ensure_lock
-- A row to be locked, for a key that was never granted.
INSERT INTO holdfast_locks (lock_key, token, expires_at, granted_at, instance, host, pid)
VALUES (:key, 0, :clock, 0, '', '', 0)
    ON CONFLICT (lock_key) DO NOTHING;

-- name: read_holds_of
-- The same of many keys.
SELECT h.lock_key, h.attempt, h.expires_at, h.claimed, h.owner, h.token, h.terms, h.granted_at, h.instance, h.host, h.pid
  FROM json_array_elements_text(:keys::json) AS k(key),
       LATERAL (SELECT * FROM holdfast_holds WHERE lock_key = k.key COLLATE "C" OFFSET 0) AS h
 ORDER BY h.lock_key, h.token, h.granted_at, h.attempt;

-- name: live_instances
-- Where those who wait can be told.
SELECT instance, count(*) FROM holdfast_tickets WHERE lock_key = :key AND expires_at > :now GROUP BY instance;

-- name: end_tickets
INSERT INTO holdfast_ended (lock_key, attempt, why, reason, until_at)
SELECT lock_key, attempt, :why::text, :reason::text, :until_at::bigint
  FROM holdfast_tickets WHERE lock_key = :key AND expires_at > :now
    ON CONFLICT (lock_key, attempt) DO UPDATE
   SET why = excluded.why, broken_by = NULL, reason = excluded.reason, until_at = excluded.until_at;

-- name: is_waited_for
-- Whether an owner has anything that others wait for. Subqueries and no joins here and below: a join could be planned
-- as a walk through all locks while they are few, and be kept.
SELECT EXISTS (
    SELECT 1 FROM holdfast_locks WHERE owner = :owner AND coalesce(owner, '') <> '' AND waiters > 0
     UNION ALL
    SELECT 1 FROM holdfast_holds AS h
     WHERE h.owner = :owner AND (SELECT waiters FROM holdfast_locks AS l WHERE l.lock_key = h.lock_key) > 0);

-- name: wanted_by
SELECT DISTINCT t.lock_key
  FROM json_array_elements_text(:owners::json) AS o(owner),
       LATERAL (SELECT lock_key FROM holdfast_tickets WHERE owner = o.owner COLLATE "C" OFFSET 0) AS t;

-- name: holds_at
SELECT l.lock_key, l.owner, l.attempt, NULL::text, l.token
  FROM json_array_elements_text(:keys::json) AS k(key),
       LATERAL (SELECT lock_key, owner, attempt, holds, expires_at, token
                  FROM holdfast_locks WHERE lock_key = k.key COLLATE "C" OFFSET 0) AS l
 WHERE l.holds = 0 AND l.owner IS NOT NULL AND l.attempt IS NOT NULL AND l.expires_at > :clock
 UNION ALL
SELECT h.lock_key, h.owner, h.attempt, h.terms, h.token
  FROM json_array_elements_text(:keys::json) AS k(key),
       LATERAL (SELECT lock_key, owner, attempt, terms, expires_at, token
                  FROM holdfast_holds WHERE lock_key = k.key COLLATE "C" OFFSET 0) AS h
 WHERE h.expires_at > :clock;

-- name: notes_at
SELECT l.lock_key, l.notes
  FROM json_array_elements_text(:keys::json) AS k(key),
       LATERAL (SELECT lock_key, notes FROM holdfast_locks WHERE lock_key = k.key COLLATE "C" OFFSET 0) AS l;

-- name: tickets_at
SELECT t.lock_key, t.owner, t.attempt, t.terms, t.queued_at, t.host, t.pid
  FROM json_array_elements_text(:keys::json) AS k(key),
       LATERAL (SELECT * FROM holdfast_tickets WHERE lock_key = k.key COLLATE "C" OFFSET 0) AS t
 WHERE t.expires_at > :clock ORDER BY t.lock_key, t.number;

-- name: renew
-- A whole batch: the places of those that were renewed. Matches only what is ours, alive, and not held for longer
-- already. A row that somebody has locked is skipped, and asked for by itself: it must not hold up all others.
WITH due AS (
    SELECT a.place, a.ttl, l.lock_key
      FROM json_to_recordset(:leases::json) AS a(place integer, key text, attempt text, token bigint, ttl bigint)
      JOIN holdfast_locks AS l ON l.lock_key = a.key COLLATE "C"
     WHERE l.attempt = a.attempt COLLATE "C" AND l.token = a.token
       AND l.expires_at > :clock
       AND l.expires_at <= :clock + a.ttl
       FOR NO KEY UPDATE OF l SKIP LOCKED)
UPDATE holdfast_locks AS l
   SET expires_at = :clock + due.ttl, claimed = 1
  FROM due
 WHERE l.lock_key = due.lock_key
   AND l.expires_at > :clock
RETURNING due.place;

-- name: read_leases
-- Of a batch of leases: the place of each that has a hold, alive or not, its end, and whether it is in the table of holds.
SELECT a.place, coalesce(h.expires_at, l.expires_at), h.expires_at IS NOT NULL
  FROM json_to_recordset(:leases::json) AS a(place integer, key text, attempt text, token bigint)
 CROSS JOIN LATERAL (SELECT lock_key, attempt, token, expires_at
                       FROM holdfast_locks WHERE lock_key = a.key COLLATE "C" OFFSET 0) AS l
  LEFT JOIN LATERAL (SELECT expires_at FROM holdfast_holds
                      WHERE lock_key = a.key COLLATE "C" AND attempt = a.attempt COLLATE "C" AND token = a.token
                     OFFSET 0) AS h ON true
 WHERE h.expires_at IS NOT NULL OR (l.attempt = a.attempt COLLATE "C" AND l.token = a.token);

-- name: renew_holds
UPDATE holdfast_holds AS h
   SET expires_at = a."end", claimed = 1
  FROM json_to_recordset(:leases::json) AS a(key text, attempt text, "end" bigint)
 WHERE h.lock_key = a.key COLLATE "C" AND h.attempt = a.attempt COLLATE "C";

-- name: renew_locks
-- After renew_holds. The row says whether the lease that was granted first is claimed.
UPDATE holdfast_locks AS l
   SET expires_at = greatest(l.expires_at, a."end"),
       claimed = CASE WHEN l.claimed = 1 THEN 1 ELSE
           (SELECT max(h.claimed) FROM holdfast_holds AS h
             WHERE h.lock_key = l.lock_key
               AND h.token = (SELECT min(f.token) FROM holdfast_holds AS f WHERE f.lock_key = l.lock_key)) END
  FROM json_to_recordset(:leases::json) AS a(key text, "end" bigint)
 WHERE l.lock_key = a.key COLLATE "C";

-- name: waited_for
-- Locks and the tickets at their heads: what has to be settled, and what their waiters want to know.
SELECT l.lock_key, :clock, l.owner, l.expires_at, l.holds, t.attempt, t.expires_at, l.notes
  FROM json_array_elements_text(:keys::json) AS k(key)
  JOIN holdfast_locks AS l ON l.lock_key = k.key COLLATE "C"
  LEFT JOIN LATERAL (SELECT attempt, expires_at FROM holdfast_tickets
                      WHERE lock_key = l.lock_key ORDER BY number LIMIT 1) AS t ON true;

-- name: refresh_tickets
-- A whole batch: the places of those that are still there.
UPDATE holdfast_tickets AS t
   SET expires_at = greatest(t.expires_at, :clock + a.patience)
  FROM json_to_recordset(:tickets::json) AS a(place integer, key text, attempt text, patience bigint)
 WHERE t.lock_key = a.key COLLATE "C" AND t.attempt = a.attempt COLLATE "C" RETURNING a.place;

-- name: fence
-- In the caller's transaction, to its end: renewing and queueing pass, a grant waits, because it changes the token.
SELECT 1 FROM holdfast_locks WHERE lock_key = :key AND token = :token FOR KEY SHARE;

-- name: fence_alive
-- Before fence, without a lock: a row if the lease is alive and exclusive. An old snapshot may not show its renewal.
SELECT 1 FROM holdfast_locks AS l
  LEFT JOIN holdfast_holds AS h ON l.holds > 0 AND h.lock_key = l.lock_key AND h.attempt = :attempt
 WHERE l.lock_key = :key AND l.token = :token
   AND CASE l.holds WHEN 0 THEN l.attempt = :attempt ELSE h.attempt IS NOT NULL END
   AND coalesce(h.terms, '') NOT LIKE '%"mode"%' AND coalesce(h.expires_at, l.expires_at) > :clock;

-- name: fence_seen
-- Behind fence: no row if a snapshot from before the grant hides it; and whether the whole transaction has the lock, and
-- not a savepoint of it, which could be rolled back. Those who lock a row are named by xmax, if one does it, by its own
-- number: a savepoint has one of its own. If several do, it is the number of a list of them. That looks the same, and to
-- read a list that is none is an error. What the transaction has written itself needs no lock.
SELECT CASE WHEN t.whole IN (l.xmin::text::bigint, l.xmax::text::bigint) THEN true
            WHEN l.xmax::text = '0' THEN false
            WHEN EXISTS (SELECT FROM pg_locks WHERE locktype = 'transactionid' AND pid = pg_backend_pid()
                            AND transactionid::text = l.xmax::text) THEN false
            ELSE EXISTS (SELECT FROM pg_get_multixact_members(l.xmax) AS m WHERE m.xid::text::bigint = t.whole) END
  FROM holdfast_locks AS l, (SELECT txid_current() % 4294967296 AS whole) AS t
 WHERE l.lock_key = :key AND l.token = :token;

-- name: mark
-- In a caller's transaction: what is locked from here on is unlocked again by back_to_mark, if it comes to nothing.
SAVEPOINT holdfast;

-- name: is_outermost
-- Inside two marks: whether the caller has no savepoint, which could be rolled back. To write gives a number to the
-- inner mark, and to all that it is inside of; each keeps its own locked until it ends. What is written is taken back.
UPDATE holdfast_locks AS l SET claimed = claimed WHERE lock_key = :key
RETURNING (SELECT count(*) = 3 FROM pg_locks WHERE locktype = 'transactionid' AND pid = pg_backend_pid()
              AND mode = 'ExclusiveLock' AND l.lock_key IS NOT NULL);

-- name: back_to_mark
ROLLBACK TO SAVEPOINT holdfast;

-- name: forget_mark
RELEASE SAVEPOINT holdfast;

-- name: store_id
-- And the level that a caller's transaction has.
SELECT store_id, current_setting('transaction_isolation') FROM holdfast_meta WHERE id = 1;

-- name: list_by_owner
-- Of an owner whose lease is not the first of its key, only the holds know. Each key comes once, by its first hold there.
(SELECT lock_key, token, owner, claimed, expires_at, granted_at, host, pid, holds, waiters, notes
  FROM holdfast_locks AS l
 WHERE owner = :owner AND coalesce(owner, '') <> '' AND (attempt IS NOT NULL OR holds > 0 OR expires_at > :now)
   AND lock_key >= :from_key AND (:to_key::text IS NULL OR lock_key < :to_key) AND lock_key > :after
   AND :owned_in_state
 ORDER BY lock_key LIMIT :limit)
 UNION ALL
(SELECT l.*
  FROM holdfast_holds AS h,
       LATERAL (SELECT lock_key, token, owner, claimed, expires_at, granted_at, host, pid, holds, waiters, notes
                  FROM holdfast_locks WHERE lock_key = h.lock_key OFFSET 0) AS l
 WHERE h.owner = :owner AND l.owner <> :owner
   AND h.lock_key >= :from_key AND (:to_key::text IS NULL OR h.lock_key < :to_key) AND h.lock_key > :after
   AND h.attempt = (SELECT min(attempt) FROM holdfast_holds WHERE lock_key = h.lock_key AND owner = :owner)
   AND :owned_in_state
 ORDER BY h.lock_key LIMIT :limit)
 ORDER BY lock_key LIMIT :limit;

-- name: feed_new
-- Events that have no place yet.
SELECT lock_key, number, at FROM holdfast_history WHERE feed IS NULL ORDER BY at, lock_key, number LIMIT :limit;

-- name: sweep_expired
SELECT lock_key FROM holdfast_locks
 WHERE coalesce(owner, '') <> '' AND expires_at <= :now ORDER BY expires_at LIMIT :limit;

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
  FROM (SELECT :clock AS now) AS t
    ON CONFLICT (id) DO UPDATE SET id = excluded.id
RETURNING id, name, digest, rights, created_at, expires_at;

-- name: delete_access
DELETE FROM holdfast_access
 WHERE ctid = ANY (ARRAY (SELECT ctid FROM holdfast_access
                           WHERE expires_at <= :now ORDER BY expires_at LIMIT :limit FOR UPDATE SKIP LOCKED));

-- name: insert_instance
INSERT INTO holdfast_instances
       (id, name, host, pid, address, version, capacity, state, joined_at, beat_at, asked_at, expires_at)
SELECT :id::text, :name::text, :host::text, :pid::bigint, :address::text, :version::text, :capacity::bigint, 'alive',
       t.now, t.now, t.now, t.now + :ttl::bigint
  FROM (SELECT :clock AS now) AS t
    ON CONFLICT (id) DO NOTHING
RETURNING 1;

-- name: dead_instances
-- Others that nobody has declared dead yet. Who is at one of them already will do it.
SELECT id, name FROM holdfast_instances WHERE state IN ('alive', 'draining') AND expires_at <= :clock AND id <> :id
 ORDER BY expires_at, id LIMIT :limit FOR UPDATE SKIP LOCKED;

-- name: note_instance
INSERT INTO holdfast_history (lock_key, number, kind, at, token, owner)
SELECT :key::text, coalesce(max(number), 0) + 1, :kind::text, :at::bigint, 0, :owner::text
  FROM holdfast_history WHERE lock_key = :key;

-- name: wanting
SELECT id, address FROM holdfast_instances
 WHERE state = 'alive' AND expires_at > :clock AND strpos(wants, :wanted) > 0 ORDER BY asked_at, id LIMIT :limit;

-- name: delete_instances
-- Whatever their state: who was to be heard of until then is gone.
DELETE FROM holdfast_instances
 WHERE ctid = ANY (ARRAY (SELECT ctid FROM holdfast_instances
                           WHERE state IN ('alive', 'draining', 'left', 'dead') AND expires_at <= :before
                           LIMIT :limit FOR UPDATE SKIP LOCKED))
RETURNING 1;

-- name: new_work
-- A row to be locked, for work that nobody has offered.
INSERT INTO holdfast_work (work_key, type, state, due_at, data, text, max_tries, offered_at)
SELECT :key::text, :type::text, 'offered', t.now, 'null', '', 0, t.now
  FROM (SELECT :clock AS now) AS t
    ON CONFLICT (work_key) DO NOTHING
RETURNING 1;

-- name: offer_works
-- A row for each that is new: not known, or to be done again. Keys come in their order, so that two who offer the same
-- do not wait for each other. What is known is looked up first, so that it is not locked.
INSERT INTO holdfast_work AS w (work_key, type, state, due_at, data, text, max_tries, offered_at)
SELECT o.key, o.type, 'offered', coalesce(o.at, t.now + o.delay), o.data, '', o.max_tries, t.now
  FROM (SELECT :clock AS now) AS t
 CROSS JOIN json_to_recordset(:works::json) AS o(key text, type text, data text, max_tries bigint, delay bigint, at bigint)
  LEFT JOIN LATERAL (SELECT state FROM holdfast_work WHERE work_key = o.key COLLATE "C" OFFSET 0) AS s ON true
 WHERE s.state IS NULL OR (:again::boolean AND s.state IN ('completed', 'failed'))
    ON CONFLICT (work_key) DO UPDATE
   SET state = 'offered', due_at = excluded.due_at, data = excluded.data, text = '', tries = 0,
       max_tries = excluded.max_tries, instance = '', attempt = '', token = 0, claim = 0,
       offered_at = excluded.offered_at, assigned_at = NULL
 WHERE :again::boolean AND w.state IN ('completed', 'failed') RETURNING work_key, type, due_at <= offered_at;

-- name: work_states
SELECT w.work_key, w.state
  FROM json_array_elements_text(:keys::json) AS k(key),
       LATERAL (SELECT work_key, state FROM holdfast_work WHERE work_key = k.key COLLATE "C" OFFSET 0) AS w;

-- name: claim_works
-- The fast path of a claim: all of it in one statement. A row with the time, what the instance had before, its capacity,
-- and nothing else if there is nothing to take; else one for each piece of work, without a token if somebody is at its
-- lock. No row: the general way. That is so if the instance may not claim, if there is anything to be looked at first, or
-- if a lock of what is first in the queue is not free.
-- It all hangs on the row of the instance, which is locked before any work is. If somebody has changed that row while we
-- waited for it, what was counted before is out of date: xmin tells. What the instance has is counted only if that
-- matters. Work that somebody else is at is passed over, and so are locks, as in take_locks. That nothing was claimed
-- need not reach the disk. Rows to be changed are found by arrays: a join may be planned as a walk through all there are.
WITH t AS MATERIALIZED (
    SELECT :clock AS now),
k AS MATERIALIZED (
    SELECT type COLLATE "C" AS type, n FROM json_array_elements_text(:types::json) WITH ORDINALITY AS k(type, n)),
i AS (
    UPDATE holdfast_instances AS i
       SET claims = :number, asked_at = t.now, wants = NULL, address = :instance, host = :host, pid = :pid,
           load = :limit::bigint + CASE WHEN :spread::bigint = 0 AND i.load + :limit::bigint <= i.capacity THEN i.load
                       ELSE (SELECT count(*) FROM holdfast_work WHERE instance = :id AND state = 'assigned') END
      FROM t
     WHERE i.id = :id AND CASE i.state WHEN 'alive' THEN i.expires_at > t.now END AND i.claims < :number
       AND i.xmin = (SELECT s.xmin FROM holdfast_instances AS s WHERE s.id = :id)
       AND NOT EXISTS (SELECT FROM k, LATERAL (SELECT FROM holdfast_work
                                                WHERE state = 'assigned' AND type = k.type AND due_at <= t.now
                                                  AND coalesce(state, '') <> 'completed' LIMIT 1) AS w)
       AND NOT EXISTS (SELECT FROM k, LATERAL (SELECT work_key FROM holdfast_work
                                                WHERE state = 'offered' AND type = k.type AND due_at <= t.now
                                                  AND coalesce(state, '') <> 'completed'
                                                ORDER BY due_at, work_key LIMIT :limit) AS w,
                                      LATERAL (SELECT owner IS NULL AND waiters = 0 AND holds = 0 AND notes IS NULL AS free
                                                 FROM holdfast_locks WHERE lock_key = w.work_key OFFSET 0) AS l
                        WHERE NOT l.free)
    RETURNING i.load - :limit::bigint AS had, i.capacity),
picked AS MATERIALIZED (
    SELECT w.work_key, w.due_at, row_number() OVER (ORDER BY k.n, w.due_at, w.work_key) - 1 AS place
      FROM i, t, k, LATERAL (SELECT work_key, due_at FROM holdfast_work
                              WHERE state = 'offered' AND type = k.type AND due_at <= t.now
                                AND coalesce(state, '') <> 'completed'
                              ORDER BY due_at, work_key LIMIT greatest(least(:limit::bigint, i.capacity - i.had), 0)
                                FOR UPDATE SKIP LOCKED) AS w),
works AS MATERIALIZED (
    SELECT p.work_key, :attempt::text || '.' || p.place AS attempt, l.known
      FROM i CROSS JOIN t CROSS JOIN picked AS p
      LEFT JOIN LATERAL (SELECT true AS known FROM holdfast_locks WHERE lock_key = p.work_key OFFSET 0) AS l ON true
     WHERE p.place < least(:limit::bigint, i.capacity - i.had)
       AND t.now - p.due_at >= :spread::bigint * (i.had + p.place) / i.capacity),
free AS MATERIALIZED (
    SELECT l.lock_key, works.attempt
      FROM works, LATERAL (SELECT lock_key FROM holdfast_locks
                            WHERE lock_key = works.work_key AND owner IS NULL AND waiters = 0 AND holds = 0 AND notes IS NULL
                              FOR UPDATE SKIP LOCKED) AS l
     WHERE works.known),
old AS (
    UPDATE holdfast_locks AS l
       SET token = greatest(l.token + 1, (SELECT token_floor + 1 FROM holdfast_meta WHERE id = 1 AND l.token = 0), t.now),
           owner = :id, attempt = free.attempt, claimed = 1, granted_at = t.now, expires_at = t.now + :ttl::bigint,
           instance = :instance, host = :host, pid = :pid
      FROM t, free WHERE l.lock_key = free.lock_key AND l.lock_key = ANY (ARRAY (SELECT lock_key FROM free))
    RETURNING l.lock_key, l.token, l.attempt),
new AS (
    INSERT INTO holdfast_locks AS l (lock_key, token, owner, attempt, granted_at, expires_at, instance, host, pid)
    SELECT works.work_key, greatest((SELECT token_floor + 1 FROM holdfast_meta WHERE id = 1), t.now),
           :id::text, works.attempt, t.now, t.now + :ttl::bigint, :instance::text, :host::text, :pid::bigint
      FROM t, works WHERE works.known IS NULL
        ON CONFLICT (lock_key) DO NOTHING
    RETURNING l.lock_key, l.token, l.attempt),
granted AS MATERIALIZED (
    SELECT * FROM old UNION ALL SELECT * FROM new),
taken AS (
    UPDATE holdfast_work AS w
       SET state = 'assigned', instance = :id, claim = :number, tries = w.tries + 1,
           attempt = g.attempt, token = g.token, assigned_at = t.now, due_at = t.now + :ttl::bigint
      FROM t, granted AS g WHERE w.work_key = g.lock_key AND w.work_key = ANY (ARRAY (SELECT lock_key FROM granted))
    RETURNING w.work_key, w.attempt, w.token, w.data, w.tries)
SELECT t.now, i.had, i.capacity, works.work_key, taken.attempt, taken.token, taken.data, taken.tries,
       CASE WHEN works.work_key IS NULL THEN set_config('synchronous_commit', 'off', true) END
  FROM t CROSS JOIN i LEFT JOIN works ON true LEFT JOIN taken ON taken.work_key = works.work_key;

-- name: want_work
-- What an instance wants that has not got enough, unless it has claimed again. Before next_due, in one round trip.
UPDATE holdfast_instances SET wants = :wants
 WHERE id = :id AND claims = :number AND set_config('synchronous_commit', 'off', true) IS NOT NULL;

-- name: due_assigned
-- Work that is assigned and due, of each type up to a limit, with what its lock's row says. Whoever else is at one of
-- them is passed over.
SELECT w.work_key, w.type, w.state, w.due_at, w.data, w.text, w.tries, w.max_tries, w.instance, w.attempt, w.token, w.claim, w.offered_at, w.assigned_at,
       l.attempt, l.expires_at, l.holds, l.waiters, l.notes IS NULL, t.now
  FROM (SELECT :clock AS now) AS t
 CROSS JOIN json_array_elements_text(:types::json) WITH ORDINALITY AS k(type, n)
 CROSS JOIN LATERAL (SELECT * FROM holdfast_work
                      WHERE state = 'assigned' AND type = k.type COLLATE "C" AND due_at <= t.now
                        AND coalesce(state, '') <> 'completed'
                      ORDER BY due_at, work_key LIMIT :limit FOR UPDATE SKIP LOCKED) AS w
  LEFT JOIN LATERAL (SELECT attempt, expires_at, holds, waiters, notes
                       FROM holdfast_locks WHERE lock_key = w.work_key OFFSET 0) AS l ON true
 ORDER BY k.n, w.due_at, w.work_key;

-- name: move_due
WITH m AS MATERIALIZED (
    SELECT key COLLATE "C" AS key, due FROM json_to_recordset(:works::json) AS m(key text, due bigint))
UPDATE holdfast_work AS w SET due_at = m.due
  FROM m WHERE w.work_key = m.key AND w.work_key = ANY (ARRAY (SELECT key FROM m));

-- name: pick_work
-- Work that is offered and due, of each type up to a limit, and whether its lock seems to be free. Whoever else is at
-- one of them is passed over.
SELECT w.work_key, w.due_at, l.free IS NOT FALSE, t.now
  FROM (SELECT :clock AS now) AS t
 CROSS JOIN json_array_elements_text(:types::json) WITH ORDINALITY AS k(type, n)
 CROSS JOIN LATERAL (SELECT work_key, due_at FROM holdfast_work
                      WHERE state = 'offered' AND type = k.type COLLATE "C" AND due_at <= t.now
                        AND coalesce(state, '') <> 'completed'
                      ORDER BY due_at, work_key LIMIT :limit FOR UPDATE SKIP LOCKED) AS w
  LEFT JOIN LATERAL (SELECT owner IS NULL AND waiters = 0 AND holds = 0 AND notes IS NULL AS free
                       FROM holdfast_locks WHERE lock_key = w.work_key OFFSET 0) AS l ON true
 ORDER BY k.n, w.due_at, w.work_key;

-- name: try_lock_rows
-- Of those locks that have a row, whether it is ours now: nobody waits here for who is at one of them.
WITH k AS MATERIALIZED (SELECT key FROM json_array_elements_text(:keys::json) AS k(key)),
mine AS MATERIALIZED (
    SELECT l.lock_key
      FROM k, LATERAL (SELECT lock_key FROM holdfast_locks WHERE lock_key = k.key COLLATE "C"
                          FOR NO KEY UPDATE SKIP LOCKED) AS l)
SELECT l.lock_key, l.lock_key IN (SELECT lock_key FROM mine)
  FROM k, LATERAL (SELECT lock_key FROM holdfast_locks WHERE lock_key = k.key COLLATE "C" OFFSET 0) AS l;

-- name: take_locks
-- Grants the locks of work: those that have no row; and those that are free, that nobody is at, and that no transaction
-- pins. Of the others nothing is to be seen behind it. FOR UPDATE locks the rows as they are now, so what is asked of
-- them here is true of them when they are written.
WITH t AS MATERIALIZED (
    SELECT :clock AS now),
works AS MATERIALIZED (
    SELECT k.key, k.attempt, l.known
      FROM json_to_recordset(:works::json) AS k(key text, attempt text)
      LEFT JOIN LATERAL (SELECT true AS known FROM holdfast_locks
                          WHERE lock_key = k.key COLLATE "C" OFFSET 0) AS l ON true),
free AS MATERIALIZED (
    SELECT l.lock_key, works.attempt
      FROM works,
           LATERAL (SELECT lock_key FROM holdfast_locks
                     WHERE lock_key = works.key COLLATE "C" AND owner IS NULL AND waiters = 0 AND holds = 0 AND notes IS NULL
                       FOR UPDATE SKIP LOCKED) AS l
     WHERE works.known),
old AS (
    UPDATE holdfast_locks AS l
       SET token = greatest(l.token + 1, (SELECT token_floor + 1 FROM holdfast_meta WHERE id = 1 AND l.token = 0), t.now),
           owner = :owner, attempt = free.attempt, claimed = 1, granted_at = t.now, expires_at = t.now + :ttl::bigint,
           instance = :instance, host = :host, pid = :pid
      FROM t, free
     WHERE l.lock_key = free.lock_key AND l.lock_key = ANY (ARRAY (SELECT lock_key FROM free)))
INSERT INTO holdfast_locks (lock_key, token, owner, attempt, granted_at, expires_at, instance, host, pid)
SELECT works.key, greatest((SELECT token_floor + 1 FROM holdfast_meta WHERE id = 1), t.now),
       :owner::text, works.attempt, t.now, t.now + :ttl::bigint, :instance::text, :host::text, :pid::bigint
  FROM t, works WHERE works.known IS NULL
    ON CONFLICT (lock_key) DO NOTHING;

-- name: take_works
-- Assigns the work whose locks were granted just now.
WITH granted AS MATERIALIZED (
    SELECT l.*
      FROM json_to_recordset(:works::json) AS k(key text, attempt text),
           LATERAL (SELECT lock_key, attempt, token, granted_at, expires_at FROM holdfast_locks
                     WHERE lock_key = k.key COLLATE "C" AND attempt = k.attempt COLLATE "C" OFFSET 0) AS l)
UPDATE holdfast_work AS w
   SET state = 'assigned', instance = :id, claim = :number, tries = w.tries + 1,
       attempt = g.attempt, token = g.token, assigned_at = g.granted_at, due_at = g.expires_at
  FROM granted AS g WHERE w.work_key = g.lock_key AND w.work_key = ANY (ARRAY (SELECT lock_key FROM granted))
RETURNING w.work_key, w.attempt, w.token, w.data, w.tries, w.assigned_at, w.due_at;

-- name: claimed_before
-- What an instance still has of an earlier claim.
SELECT w.work_key, w.attempt, w.token, w.data, w.tries, coalesce(h.expires_at, l.expires_at), t.now
  FROM (SELECT :clock AS now) AS t
 CROSS JOIN holdfast_work AS w
 CROSS JOIN LATERAL (SELECT * FROM holdfast_locks WHERE lock_key = w.work_key OFFSET 0) AS l
  LEFT JOIN LATERAL (SELECT attempt, expires_at FROM holdfast_holds
                      WHERE lock_key = w.work_key AND attempt = w.attempt OFFSET 0) AS h ON l.holds > 0
 WHERE w.instance = :id AND w.state = 'assigned' AND w.claim = :number
   AND CASE l.holds WHEN 0 THEN l.attempt = w.attempt ELSE h.attempt IS NOT NULL END
   AND coalesce(h.expires_at, l.expires_at) > t.now;

-- name: next_due
-- When the first of these types can be claimed, and when the first is to be looked at.
SELECT :clock,
       (SELECT min((SELECT due_at FROM holdfast_work WHERE state = 'offered' AND type = k.type COLLATE "C"
                       AND coalesce(state, '') <> 'completed' ORDER BY due_at LIMIT 1))
          FROM json_array_elements_text(:types::json) AS k(type)),
       (SELECT min((SELECT due_at FROM holdfast_work WHERE state = 'assigned' AND type = k.type COLLATE "C"
                       AND coalesce(state, '') <> 'completed' ORDER BY due_at LIMIT 1))
          FROM json_array_elements_text(:types::json) AS k(type));

-- name: count_work
-- Reads all that is not completed, and of that only the index.
SELECT type, count(*) FILTER (WHERE state = 'offered'), count(*) FILTER (WHERE state = 'assigned'),
       count(*) FILTER (WHERE state = 'failed'), min(due_at) FILTER (WHERE state = 'offered'), :clock
  FROM holdfast_work WHERE state IN ('offered', 'assigned', 'failed') AND coalesce(state, '') <> 'completed'
 GROUP BY type ORDER BY type;

-- name: delete_works
DELETE FROM holdfast_work
 WHERE ctid = ANY (ARRAY (SELECT ctid FROM holdfast_work
                           WHERE coalesce(state, '') IN ('completed', 'failed') AND due_at <= :before
                           ORDER BY due_at LIMIT :limit FOR UPDATE SKIP LOCKED))
RETURNING 1;

-- name: count_held
SELECT count(*) FROM holdfast_locks WHERE coalesce(owner, '') <> '' AND expires_at > :clock;

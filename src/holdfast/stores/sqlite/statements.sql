-- Every statement holdfast sends to SQLite. Each can be pasted into a console.
--
-- :now is empty in production, and then the database's clock decides; tests pass a time. SQLite evaluates
-- 'now' after it has the write lock, so a statement that had to wait does not use the time before the wait.
-- On SQLite a request is one statement, or one BEGIN IMMEDIATE … COMMIT: a read transaction that is upgraded
-- to write fails at once when somebody wrote meanwhile, whatever the busy timeout.

-- name: acquire
-- The fast path: a row when granted, in one statement. It takes only a lock that is free with nobody waiting, or
-- confirms what this attempt has already (a repeated request, or the claim of a hand-over, if it is for long: else
-- the head of the queue may have to be told). A lock with notes is left alone: to be granted may change them. No row:
-- the slow path.
INSERT INTO holdfast_locks AS l
       (lock_key, token, owner, attempt, granted_at, expires_at, instance, host, pid)
SELECT :key,
       max((SELECT token_floor + 1 FROM holdfast_meta WHERE id = 1), t.now),
       :owner, :attempt, t.now, t.now + :ttl, :instance, :host, :pid
  FROM (SELECT coalesce(:now, CAST((julianday('now') - 2440587.5) * 86400000000.0 AS INTEGER)) AS now) AS t
 WHERE NOT EXISTS (SELECT 1 FROM holdfast_ended
                    WHERE lock_key = :key AND attempt = :attempt AND until_at > t.now)
    ON CONFLICT (lock_key) DO UPDATE
   SET token      = CASE WHEN l.owner IS NULL THEN max(l.token + 1, excluded.granted_at) ELSE l.token END,
       granted_at = CASE WHEN l.owner IS NULL THEN excluded.granted_at ELSE l.granted_at END,
       expires_at = CASE WHEN l.owner IS NULL OR l.claimed = 0 THEN excluded.expires_at
                         ELSE max(l.expires_at, excluded.expires_at) END,
       owner = excluded.owner, attempt = excluded.attempt, claimed = 1,
       instance = excluded.instance, host = excluded.host, pid = excluded.pid
 WHERE CASE WHEN l.owner IS NULL THEN l.waiters = 0 AND l.notes IS NULL AND l.last_attempt IS NOT excluded.attempt
            ELSE l.attempt = excluded.attempt AND l.expires_at > excluded.granted_at AND (l.claimed OR :long) END
RETURNING token, expires_at - coalesce(:now, CAST((julianday('now') - 2440587.5) * 86400000000.0 AS INTEGER));

-- name: release
-- The fast path: a row when the only hold was released and nobody waits. No row: the slow path.
UPDATE holdfast_locks
   SET owner = NULL, attempt = NULL, last_attempt = attempt,
       expires_at = coalesce(:now, CAST((julianday('now') - 2440587.5) * 86400000000.0 AS INTEGER))
 WHERE lock_key = :key AND attempt = :attempt AND token = :token
   AND waiters = 0
   AND expires_at > coalesce(:now, CAST((julianday('now') - 2440587.5) * 86400000000.0 AS INTEGER))
RETURNING token;

-- name: now
SELECT coalesce(:now, CAST((julianday('now') - 2440587.5) * 86400000000.0 AS INTEGER));

-- name: begin
BEGIN IMMEDIATE;

-- name: commit
COMMIT;

-- name: rollback
ROLLBACK;

-- name: save
-- In a group of requests, before one that takes several statements: so that it can fail alone.
SAVEPOINT request;

-- name: undo
ROLLBACK TO request;

-- name: forget
RELEASE request;

-- name: read_lock
-- Always one row: the time; whether a transaction pins the lease (here whoever writes is alone); the floor of tokens;
-- the lock, if there is one; how the attempt ended; its ticket; the winner of a hand-over, and who is head after it.
SELECT t.now, 0, (SELECT token_floor FROM holdfast_meta WHERE id = 1),
       l.token, l.owner, l.attempt, l.claimed, l.expires_at, l.granted_at, l.instance, l.host, l.pid,
       l.last_attempt, l.holds, l.waiters, l.next_ticket,
       coalesce(l.events, (SELECT max(number) FROM holdfast_history WHERE lock_key = :key), 0), l.notes,
       e.why, e.broken_by, e.reason,
       mine.number, mine.owner,
       one.number, one.attempt, one.owner, one.instance, one.host, one.pid, one.claim, one.expires_at, one.terms,
       two.number, two.attempt, two.owner, two.instance, two.host, two.pid, two.claim, two.expires_at, two.terms
  FROM (SELECT coalesce(:now, CAST((julianday('now') - 2440587.5) * 86400000000.0 AS INTEGER)) AS now) AS t
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

-- name: insert_lock
INSERT INTO holdfast_locks (lock_key, token, owner, attempt, claimed, expires_at, granted_at, instance, host, pid,
                            last_attempt, holds, waiters, next_ticket, events, notes)
VALUES (:key, :token, :owner, :attempt, :claimed, :expires_at, :granted_at, :instance, :host, :pid,
        :last_attempt, :holds, :waiters, :next_ticket, :events, :notes);

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
  FROM json_each(:keys) AS k CROSS JOIN holdfast_holds AS h ON h.lock_key = k.value
 ORDER BY h.lock_key, h.token, h.granted_at, h.attempt;

-- name: write_hold
INSERT INTO holdfast_holds (lock_key, attempt, owner, token, terms, claimed, expires_at, granted_at, instance, host, pid)
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

-- name: delete_ticket
DELETE FROM holdfast_tickets WHERE lock_key = :key AND number = :number;

-- name: find_ticket
SELECT instance, terms FROM holdfast_tickets WHERE lock_key = :key AND attempt = :attempt;

-- name: all_tickets
SELECT number, attempt, instance, terms FROM holdfast_tickets WHERE lock_key = :key ORDER BY number;

-- name: live_instances
-- Who has waited longest is told first.
SELECT instance, count(*) FROM holdfast_tickets
 WHERE lock_key = :key AND expires_at > coalesce(:now, CAST((julianday('now') - 2440587.5) * 86400000000.0 AS INTEGER))
 GROUP BY instance ORDER BY min(number);

-- name: end_tickets
-- Those who wait are told the same, all at once.
INSERT INTO holdfast_ended (lock_key, attempt, why, broken_by, reason, until_at)
SELECT lock_key, attempt, :why, NULL, :reason, :until_at
  FROM holdfast_tickets WHERE lock_key = :key AND expires_at > coalesce(:now, CAST((julianday('now') - 2440587.5) * 86400000000.0 AS INTEGER))
    ON CONFLICT (lock_key, attempt) DO UPDATE
   SET why = excluded.why, broken_by = excluded.broken_by, reason = excluded.reason, until_at = excluded.until_at;

-- name: delete_tickets
DELETE FROM holdfast_tickets WHERE lock_key = :key;

-- name: write_outcome
INSERT INTO holdfast_outcomes (lock_key, token, succeeded, text, until_at)
VALUES (:key, :token, :succeeded, :text, :until_at)
    ON CONFLICT (lock_key, token) DO UPDATE
   SET succeeded = excluded.succeeded, text = excluded.text, until_at = excluded.until_at;

-- name: read_outcome
SELECT succeeded, text FROM holdfast_outcomes WHERE lock_key = :key AND token = :token;

-- name: tickets_before
SELECT count(*) FROM holdfast_tickets WHERE lock_key = :key AND number < :number;

-- name: renew_lease
-- Run for each lease of a batch, in one transaction: SQLite has no round trips to save, and a join with a list of
-- leases would be at the mercy of the planner (after ANALYZE of a small table it scanned a large one). Matches
-- only what is ours, alive, and not held for longer already.
UPDATE holdfast_locks SET expires_at = :end
 WHERE lock_key = :key AND attempt = :attempt AND token = :token
   AND expires_at > :now AND expires_at <= :end;

-- name: refresh_ticket
-- Asking again says where we can be reached now.
UPDATE holdfast_tickets
   SET expires_at = max(expires_at, :expires_at), instance = :instance, host = :host, pid = :pid
 WHERE lock_key = :key AND attempt = :attempt;

-- name: keep_ticket
UPDATE holdfast_tickets SET expires_at = max(expires_at, :expires_at)
 WHERE lock_key = :key AND attempt = :attempt;

-- name: waited_for
-- A lock and the ticket at its head: what has to be settled, and what its waiters want to know.
SELECT l.expires_at, l.holds, t.attempt, t.expires_at, l.notes
  FROM holdfast_locks AS l
  LEFT JOIN holdfast_tickets AS t
         ON t.lock_key = l.lock_key
        AND t.number = (SELECT min(number) FROM holdfast_tickets AS h WHERE h.lock_key = l.lock_key)
 WHERE l.lock_key = :key;

-- name: lock_row
-- In a caller's transaction: become the writer, whatever it has done so far.
UPDATE holdfast_meta SET id = id WHERE id = 1 AND :key IS NOT NULL;

-- name: probe_pin
SELECT 1 WHERE :key IS NOT NULL;

-- name: fence
-- In the caller's transaction, to its end: it becomes the file's only writer.
UPDATE holdfast_locks SET token = token WHERE lock_key = :key AND token = :token RETURNING 1;

-- name: fence_seen
SELECT 1 FROM holdfast_locks WHERE lock_key = :key AND token = :token;

-- name: fence_alive
-- Only of an exclusive lease: only the terms of others have a mode.
SELECT 1 FROM holdfast_locks AS l
  LEFT JOIN holdfast_holds AS h ON l.holds > 0 AND h.lock_key = l.lock_key AND h.attempt = :attempt
 WHERE l.lock_key = :key AND l.token = :token
   AND CASE l.holds WHEN 0 THEN l.attempt = :attempt ELSE h.attempt IS NOT NULL END
   AND coalesce(h.terms, '') NOT LIKE '%"mode"%'
   AND coalesce(h.expires_at, l.expires_at) > coalesce(:now, CAST((julianday('now') - 2440587.5) * 86400000000.0 AS INTEGER));

-- name: store_id
SELECT store_id FROM holdfast_meta WHERE id = 1;

-- name: inspect
SELECT lock_key, token, owner, claimed, expires_at, granted_at, host, pid, holds, waiters, notes
  FROM holdfast_locks WHERE lock_key = :key;

-- name: waiters
SELECT owner, host, pid, queued_at FROM holdfast_tickets WHERE lock_key = :key ORDER BY number LIMIT :limit;

-- name: list
-- :from_key is the later of the prefix and the key to go on after. :to_key ends the prefix, if anything does; an empty
-- blob comes after every text. Both bound the search; the + keeps the third from being chosen for it.
SELECT lock_key, token, owner, claimed, expires_at, granted_at, host, pid, holds, waiters, notes
  FROM holdfast_locks
 WHERE lock_key >= :from_key AND lock_key < coalesce(:to_key, x'') AND +lock_key > :after
   AND CASE :state WHEN 'held' THEN owner IS NOT NULL AND expires_at > :now
                   WHEN 'expired' THEN (attempt IS NOT NULL OR holds > 0) AND expires_at <= :now
                   WHEN 'free' THEN owner IS NULL OR (attempt IS NULL AND holds = 0 AND expires_at <= :now)
                   ELSE 1 END
 ORDER BY lock_key LIMIT :limit;

-- name: list_by_owner
-- Whoever was granted it first is in the row, or whose expiry keeps it shut, until that is over; all others are only in
-- their holds. Both come in the order of the keys, and are merged.
SELECT l.lock_key, l.token, l.owner, l.claimed, l.expires_at, l.granted_at, l.host, l.pid, l.holds, l.waiters, l.notes
  FROM holdfast_locks AS l INDEXED BY holdfast_locks_by_owner
 WHERE l.owner = :owner
   AND l.lock_key >= :from_key AND l.lock_key < coalesce(:to_key, x'') AND +l.lock_key > :after
   AND (l.attempt IS NOT NULL OR l.holds > 0 OR l.expires_at > :now)
   AND CASE :state WHEN 'held' THEN l.expires_at > :now
                   WHEN 'expired' THEN l.expires_at <= :now
                   WHEN 'free' THEN 0
                   ELSE 1 END
 UNION ALL
SELECT h.lock_key, l.token, l.owner, l.claimed, l.expires_at, l.granted_at, l.host, l.pid, l.holds, l.waiters, l.notes
  FROM holdfast_holds AS h INDEXED BY holdfast_holds_by_owner
 CROSS JOIN holdfast_locks AS l ON l.lock_key = h.lock_key
 WHERE h.owner = :owner AND l.owner <> :owner
   AND h.lock_key >= :from_key AND h.lock_key < coalesce(:to_key, x'') AND +h.lock_key > :after
   AND h.attempt = (SELECT min(attempt) FROM holdfast_holds WHERE owner = :owner AND lock_key = h.lock_key)
   AND CASE :state WHEN 'held' THEN l.expires_at > :now
                   WHEN 'expired' THEN l.expires_at <= :now
                   WHEN 'free' THEN 0
                   ELSE 1 END
 ORDER BY 1 LIMIT :limit;

-- name: write_event
INSERT INTO holdfast_history (lock_key, number, kind, at, token, owner, caused_by, reason)
VALUES (:key, :number, :kind, :at, :token, :owner, :by, :reason);

-- name: history
SELECT number, kind, at, token, owner, caused_by, reason, feed
  FROM holdfast_history WHERE lock_key = :key ORDER BY number DESC LIMIT :limit;

-- name: sweep_expired
SELECT lock_key FROM holdfast_locks INDEXED BY holdfast_locks_by_expiry
 WHERE owner IS NOT NULL AND expires_at <= :now ORDER BY expires_at LIMIT :limit;

-- name: sweep_walk
SELECT lock_key, token, owner IS NULL AND expires_at <= :idle_since, waiters
  FROM holdfast_locks WHERE lock_key > :after ORDER BY lock_key LIMIT :limit;

-- name: dead_tickets
SELECT number FROM holdfast_tickets WHERE lock_key = :key AND expires_at <= :now ORDER BY number LIMIT :limit;

-- name: raise_floor
UPDATE holdfast_meta SET token_floor = max(token_floor, :token) WHERE id = 1;

-- name: delete_lock
DELETE FROM holdfast_locks WHERE lock_key = :key AND owner IS NULL AND waiters = 0;

-- name: ended_before
SELECT lock_key, attempt FROM holdfast_ended INDEXED BY holdfast_ended_by_time
 WHERE until_at <= :now ORDER BY until_at LIMIT :limit;

-- name: delete_ended
DELETE FROM holdfast_ended WHERE lock_key = :key AND attempt = :attempt;

-- name: history_before
SELECT lock_key, number FROM holdfast_history INDEXED BY holdfast_history_by_time
 WHERE at <= :before ORDER BY at LIMIT :limit;

-- name: outcomes_before
SELECT lock_key, token FROM holdfast_outcomes INDEXED BY holdfast_outcomes_by_time
 WHERE until_at <= :now ORDER BY until_at LIMIT :limit;

-- name: delete_outcome
DELETE FROM holdfast_outcomes WHERE lock_key = :key AND token = :token;

-- name: delete_event
DELETE FROM holdfast_history WHERE lock_key = :key AND number = :number;

-- name: is_waited_for
-- A row if an owner has something that somebody waits for: only then may its own waiting close a circle.
SELECT 1 FROM holdfast_locks INDEXED BY holdfast_locks_by_owner WHERE owner = :owner AND waiters > 0
 UNION ALL
SELECT 1 FROM holdfast_holds AS h INDEXED BY holdfast_holds_by_owner
 CROSS JOIN holdfast_locks AS l ON l.lock_key = h.lock_key
 WHERE h.owner = :owner AND l.waiters > 0
 LIMIT 1;

-- name: wanted_by
SELECT DISTINCT t.lock_key
  FROM json_each(:owners) AS o
 CROSS JOIN holdfast_tickets AS t INDEXED BY holdfast_tickets_by_owner ON t.owner = o.value;

-- name: holds_at
SELECT l.lock_key, l.owner, l.attempt, NULL, l.token
  FROM json_each(:keys) AS k CROSS JOIN holdfast_locks AS l ON l.lock_key = k.value
 WHERE l.holds = 0 AND l.owner IS NOT NULL AND l.attempt IS NOT NULL AND l.expires_at > coalesce(:now, CAST((julianday('now') - 2440587.5) * 86400000000.0 AS INTEGER))
 UNION ALL
SELECT h.lock_key, h.owner, h.attempt, h.terms, h.token
  FROM json_each(:keys) AS k CROSS JOIN holdfast_holds AS h ON h.lock_key = k.value
 WHERE h.expires_at > coalesce(:now, CAST((julianday('now') - 2440587.5) * 86400000000.0 AS INTEGER));

-- name: notes_at
SELECT l.lock_key, l.notes FROM json_each(:keys) AS k CROSS JOIN holdfast_locks AS l ON l.lock_key = k.value;

-- name: tickets_at
SELECT t.lock_key, t.owner, t.attempt, t.terms, t.queued_at, t.host, t.pid
  FROM json_each(:keys) AS k CROSS JOIN holdfast_tickets AS t ON t.lock_key = k.value
 WHERE t.expires_at > coalesce(:now, CAST((julianday('now') - 2440587.5) * 86400000000.0 AS INTEGER))
 ORDER BY t.lock_key, t.number;

-- name: feed_lock
-- Whoever is in a transaction that began as a writer is alone.
SELECT last FROM holdfast_feed WHERE id = 1;

-- name: feed_last
SELECT last FROM holdfast_feed WHERE id = 1;

-- name: feed_new
SELECT lock_key, number, at FROM holdfast_history INDEXED BY holdfast_history_unplaced
 WHERE feed IS NULL ORDER BY at, lock_key, number LIMIT :limit;

-- name: feed_place
UPDATE holdfast_history SET feed = :feed WHERE lock_key = :key AND number = :number AND at = :at;

-- name: feed_end
UPDATE holdfast_feed SET last = :last WHERE id = 1;

-- name: feed_read
SELECT feed, lock_key, number, kind, at, token, owner, caused_by, reason
  FROM holdfast_history INDEXED BY holdfast_history_by_feed
 WHERE feed > :after ORDER BY feed LIMIT :limit;

-- name: grant_access
-- What was granted under that id before stays as it is, and is the answer.
INSERT INTO holdfast_access (id, name, digest, rights, created_at, expires_at)
SELECT :id, :name, :digest, :rights, t.now, t.now + :ttl
  FROM (SELECT coalesce(:now, CAST((julianday('now') - 2440587.5) * 86400000000.0 AS INTEGER)) AS now) AS t
 WHERE true
    ON CONFLICT (id) DO UPDATE SET id = excluded.id
RETURNING id, name, digest, rights, created_at, expires_at;

-- name: revoke_access
DELETE FROM holdfast_access WHERE id = :id RETURNING id, name, digest, rights, created_at, expires_at;

-- name: list_access
SELECT id, name, digest, rights, created_at, expires_at FROM holdfast_access
 WHERE expires_at IS NULL OR expires_at > coalesce(:now, CAST((julianday('now') - 2440587.5) * 86400000000.0 AS INTEGER))
 ORDER BY id;

-- name: delete_access
DELETE FROM holdfast_access
 WHERE id IN (SELECT id FROM holdfast_access INDEXED BY holdfast_access_by_time
               WHERE expires_at <= :now ORDER BY expires_at LIMIT :limit);

-- name: schema_version
SELECT version FROM holdfast_meta WHERE id = 1;

-- Statements that are the same in several databases. What one of them says otherwise is in its own file,
-- which also has what :clock stands for.

-- name: now
SELECT :clock;

-- name: commit
COMMIT;

-- name: rollback
ROLLBACK;

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

-- name: delete_tickets
DELETE FROM holdfast_tickets WHERE lock_key = :key;

-- name: all_tickets
SELECT number, attempt, instance, terms FROM holdfast_tickets WHERE lock_key = :key ORDER BY number;

-- name: end_outcome
-- It is told to nobody but those who waited for it.
UPDATE holdfast_outcomes SET until_at = least(until_at, :until_at) WHERE lock_key = :key AND token = :token;

-- name: read_outcome
SELECT succeeded, text FROM holdfast_outcomes WHERE lock_key = :key AND token = :token;

-- name: tickets_before
SELECT count(*) FROM holdfast_tickets WHERE lock_key = :key AND number < :number;

-- name: refresh_ticket
-- Asking again says where we can be reached now.
UPDATE holdfast_tickets
   SET expires_at = greatest(expires_at, :expires_at), instance = :instance, host = :host, pid = :pid
 WHERE lock_key = :key AND attempt = :attempt;

-- name: store_id
SELECT store_id FROM holdfast_meta WHERE id = 1;

-- name: inspect
-- A row that was made only to be locked is no lock; one whose capacity was said is.
SELECT lock_key, token, owner, claimed, expires_at, granted_at, host, pid, holds, waiters, notes
  FROM holdfast_locks WHERE lock_key = :key AND (token > 0 OR notes IS NOT NULL);

-- name: waiters
SELECT owner, host, pid, queued_at FROM holdfast_tickets WHERE lock_key = :key ORDER BY number LIMIT :limit;

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

-- name: feed_place
UPDATE holdfast_history SET feed = :feed WHERE lock_key = :key AND number = :number AND at = :at;

-- name: feed_end
UPDATE holdfast_feed SET last = :last WHERE id = 1;

-- name: dead_tickets
SELECT number FROM holdfast_tickets WHERE lock_key = :key AND expires_at <= :now ORDER BY number LIMIT :limit;

-- name: raise_floor
-- Committed before the rows are deleted: whoever inserts one of them anew must find it.
UPDATE holdfast_meta SET token_floor = :token WHERE id = 1 AND token_floor < :token;

-- name: revoke_access
DELETE FROM holdfast_access WHERE id = :id RETURNING id, name, digest, rights, created_at, expires_at;

-- name: list_access
SELECT id, name, digest, rights, created_at, expires_at FROM holdfast_access
 WHERE expires_at IS NULL OR expires_at > :clock ORDER BY id;

-- name: write_instance
UPDATE holdfast_instances
   SET state = :state, expires_at = :expires_at, beat_at = :beat_at, address = :address, host = :host, pid = :pid,
       claims = :claims, load = :load, asked_at = :asked_at, wants = :wants
 WHERE id = :id;

-- name: declare_dead
UPDATE holdfast_instances SET state = 'dead' WHERE id = :id;

-- name: uncount_events
-- In case there is a lock of that name as well: the number of its last event is to be looked up.
UPDATE holdfast_locks SET events = NULL WHERE lock_key = :key;

-- name: read_work
SELECT work_key, type, state, due_at, data, text, tries, max_tries, instance, attempt, token, claim, offered_at, assigned_at
  FROM holdfast_work WHERE work_key = :key;

-- name: write_work
UPDATE holdfast_work
   SET type = :type, state = :state, due_at = :due_at, data = :data, text = :text, tries = :tries, max_tries = :max_tries,
       instance = :instance, attempt = :attempt, token = :token, claim = :claim, offered_at = :offered_at,
       assigned_at = :assigned_at
 WHERE work_key = :key;

-- name: delete_work
DELETE FROM holdfast_work WHERE work_key = :key;

-- name: schema_version
SELECT version FROM holdfast_meta WHERE id = 1;

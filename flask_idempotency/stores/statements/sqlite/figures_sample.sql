-- Count the first few records. Ids are digests, so these are a fair sample: how far their ids reach says how many
-- there are in all, and if there are no more than asked for, this is the whole truth.
SELECT count(*), max(lower(hex(id))), count(*),
       count(CASE WHEN state = 'running' THEN 1 END), count(CASE WHEN state = 'quarantined' THEN 1 END),
       count(CASE WHEN expires_at <= clock.now THEN 1 END),
       clock.now - min(CASE WHEN state = 'running' THEN created_at END), max(clock.now - min(expires_at), 0.0)
  FROM (SELECT id, state, created_at, expires_at FROM idempotency_record ORDER BY id LIMIT :limit) AS sample,
       (SELECT (julianday('now') - 2440587.5) * 86400.0 AS now) AS clock

-- Count the first few records. Ids are digests, so these are a fair sample: how far their ids reach says how many
-- there are in all, and if there are no more than asked for, this is the whole truth.
-- The third number is of those that must be read to find what is quarantined: an index leads to them.
SELECT COUNT(*), MAX(LOWER(HEX(id))), COUNT(CASE WHEN expires_at IS NULL THEN 1 END),
       COUNT(CASE WHEN state = 'running' THEN 1 END), COUNT(CASE WHEN state = 'quarantined' THEN 1 END),
       COUNT(CASE WHEN expires_at <= UTC_TIMESTAMP(6) THEN 1 END),
       TIMESTAMPDIFF(MICROSECOND, MIN(CASE WHEN state = 'running' THEN created_at END), UTC_TIMESTAMP(6)),
       GREATEST(TIMESTAMPDIFF(MICROSECOND, MIN(expires_at), UTC_TIMESTAMP(6)), 0)
  FROM (SELECT id, state, created_at, expires_at FROM idempotency_record ORDER BY id LIMIT :limit) AS sample

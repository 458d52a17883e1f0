-- Count the first few records. Ids are digests, so these are a fair sample: how far their ids reach says how many
-- there are in all, and if there are no more than asked for, this is the whole truth.
-- The third number is of those in the open partition, where all that is quarantined is.
SELECT count(*), max(encode(id, 'hex') COLLATE "C"), count(*) FILTER (WHERE day = 0),
       count(*) FILTER (WHERE state = 'running'), count(*) FILTER (WHERE state = 'quarantined'),
       count(*) FILTER (WHERE expires_at <= statement_timestamp()),
       statement_timestamp() - min(created_at) FILTER (WHERE state = 'running'),
       greatest(statement_timestamp() - min(expires_at), interval '0')
  FROM (SELECT id, day, state, created_at, expires_at FROM idempotency_record ORDER BY id LIMIT :limit) AS sample

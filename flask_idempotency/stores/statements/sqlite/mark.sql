-- Write a checkpoint, if our own record has been advanced to it. No row back: it has not, or is no longer ours.
-- An effect keeps the time at which it was first sent; in a new generation, that time starts again.
INSERT INTO idempotency_checkpoint AS c (record_id, name, position, kind, state, generation, result, at)
SELECT id, :name, :position, :kind, :progress, :generation, :result, (julianday('now') - 2440587.5) * 86400.0
  FROM idempotency_record
 WHERE id = :id AND token = :token AND state = 'running' AND point = :point
    ON CONFLICT (record_id, name) DO UPDATE
   SET state = excluded.state, generation = excluded.generation, result = excluded.result,
       at = CASE WHEN excluded.generation = c.generation AND c.state <> 'void' THEN c.at ELSE excluded.at END
RETURNING record_id

-- Write a checkpoint for a record that the surrounding statement advances to it.
-- An effect keeps the time at which it was first sent; in a new generation, that time starts again.
INSERT INTO idempotency_checkpoint AS c (record_id, name, position, kind, state, generation, result, at)
SELECT id, :name::text, :position::smallint, :kind::text, :progress::text, :generation::smallint, :result::text, clock_timestamp()
  FROM moved
    ON CONFLICT (record_id, name) DO UPDATE
   SET state = excluded.state, generation = excluded.generation, result = excluded.result,
       at = CASE WHEN excluded.generation = c.generation AND c.state <> 'void' THEN c.at ELSE excluded.at END
RETURNING c.record_id,
          set_config('synchronous_commit', replace(current_setting('synchronous_commit'), 'off', 'on'), true)

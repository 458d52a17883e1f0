-- Advance our own record by one point and write its checkpoint. No row back: the claim was lost, or the record is at
-- another point.
-- Repeated after a lost answer, it changes nothing and returns the same.
WITH moved AS (
    UPDATE idempotency_record
       SET point = :point
     WHERE id = :id AND token = :token AND state = 'running' AND (point IS NOT DISTINCT FROM :previous OR point = :point)
    RETURNING id
)
@mark

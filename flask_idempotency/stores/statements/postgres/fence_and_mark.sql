-- Move our own record on by one point, and write its checkpoint down. No row back: the claim was lost, or it does not stand
-- where it stood. Sent again after a lost answer, it changes nothing and says the same.
WITH moved AS (
    UPDATE idempotency_record
       SET point = :point
     WHERE id = :id AND token = :token AND state = 'running' AND (point IS NOT DISTINCT FROM :previous OR point = :point)
    RETURNING id
)
@mark

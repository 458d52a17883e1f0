-- Finish our own record, once. No row back: the claim was lost, or the record is already finished.
WITH running AS (
@running
)
@move

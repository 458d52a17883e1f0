-- Give the first caller the right to run as claim does, and store its request.
WITH moved AS (
@claim
)
@mark

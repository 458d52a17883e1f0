-- Begin a phase as fence_step does, and write the answer of the effect before it down.
WITH moved AS (
@fence_step
)
@mark

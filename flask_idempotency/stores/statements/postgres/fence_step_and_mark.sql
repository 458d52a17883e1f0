-- Begin a phase as fence_step does, and write the result of the effect before it.
WITH moved AS (
@fence_step
)
@mark

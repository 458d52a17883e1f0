-- From version 4 to 5: only an index is missing, and it is made with everything else that is missing.
SELECT 1

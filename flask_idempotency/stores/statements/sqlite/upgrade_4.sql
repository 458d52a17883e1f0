-- From version 4 to 5: only an index is missing, and is made with all that is missing.
SELECT 1

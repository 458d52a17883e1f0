"""The auditor: what clients believe, compared with what really happened. It is pure but for the books it is handed."""

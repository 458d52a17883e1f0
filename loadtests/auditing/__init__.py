"""The auditor compares what clients were told with what really happened. Only reading the books is not pure."""

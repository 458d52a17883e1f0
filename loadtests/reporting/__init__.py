"""The report: one HTML file for readers who did not see the run."""

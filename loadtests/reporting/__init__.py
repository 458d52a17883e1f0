"""The report: one HTML file for readers who were not there."""

"""Small apps on what others have published, one module each, and a program that runs the tester against them.

`make conformance` runs it: `python -m tests.conformance.peers`. Nothing else imports these modules.
"""

"""A payment gateway: another company's system, with a process and a database of its own.

It is protected by the same extension as the shop. The shop's effect sends a key, and here that key is the key of an
ordinary protected request: the pattern composes.
"""

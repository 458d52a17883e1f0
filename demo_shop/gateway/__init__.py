"""A payment gateway: another company's system, with a process and a database of its own.

It is protected by the same extension as the shop. The key that the shop's effect sends is the key of an ordinary
protected request here: the pattern composes.
"""

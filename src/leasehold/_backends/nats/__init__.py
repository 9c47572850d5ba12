"""NATS JetStream: one document per name in a key-value bucket, changed by compare-and-swap.

No driver is needed: the protocol of NATS is a few lines of text, and the driver for Python repeats requests behind its
caller's back.
"""

from leasehold._backends.nats.store import NatsStore, open_url

__all__ = ["NatsStore", "open_url"]

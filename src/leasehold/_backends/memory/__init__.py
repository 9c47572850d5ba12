"""The memory store: `store` is the server and its URL, `backend` a client's connection to it."""

from leasehold._backends.memory.backend import MemoryBackend
from leasehold._backends.memory.store import MemoryStore, open_url

__all__ = ["MemoryBackend", "MemoryStore", "open_url"]

"""`redlock://h1,h2,h3,h4,h5`: a lock that a majority of independent Redis or Valkey servers agrees on, with a fence.

`store` reads URLs and clients; `backend` asks all nodes and counts; `votes`, `counting` and `inspecting` say what their
answers mean, `taken_back` which numbers must not be granted; `nodes` connects, and leaves out and probes those that are
down; `node` is one of them, `unsaid` what it may not have heard; the two kinds of lines, `blocking_lines` and
`asyncio_lines`, carry bytes. The rules of one node live in `scripts/`.
"""

from leasehold.backends.redlock.store import adopt, open_url

__all__ = ["adopt", "open_url"]

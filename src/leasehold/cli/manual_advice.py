"""The manual pages of the verbs that only tell: `choose` and `explain`. Only text."""

from __future__ import annotations

from leasehold.cli.manual_page import Page

__all__ = ["CHOOSE_PAGE", "EXPLAIN_PAGE"]

CHOOSE_PAGE = Page(
    "which pattern and which store, or no lock at all",
    "leasehold choose [--need NEED] [--have WHAT,...] [--twice {costly,cheap}] [OPTIONS]",
    """
Recommends a way to do it and a store, with the reason: often that is no lock, but a unique constraint,
an atomic update, an idempotency key, or a row lock in your own transaction. It says what can cost you
the lock on that store, when the next holder follows a crash, which ttl to take, and what to do when
you change the store later.

On a terminal it asks what the options leave open. Without a terminal --need is enough; without any
option it then prints one page about all needs and stores.
""",
    """
exit codes:
  0                  printed
  1                  the input ended before all questions were answered
  64                 bad usage

examples:
  leasehold choose
  leasehold choose --need job --have redis,postgresql --twice cheap
  leasehold choose --need stock --have mysql --json
  leasehold choose | less
""",
)

EXPLAIN_PAGE = Page(
    "what an error means, and what to do",
    "leasehold explain [ERROR] [OPTIONS]",
    """
Explains an error of the library by its name, as a traceback shows it: when it is raised, and what to
do. Without a name it lists all. The same text is in docs/reference/errors.md.
""",
    """
exit codes:
  0                  printed
  64                 there is no such error

examples:
  leasehold explain LeaseLost
  leasehold explain leasehold.errors.FenceAhead
""",
)

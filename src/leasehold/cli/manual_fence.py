"""The manual page of `fence`. Only text."""

from __future__ import annotations

from leasehold.cli.manual_page import Page

__all__ = ["FENCE_PAGE"]

FENCE_PAGE = Page(
    "raise the fences of locks, above a number or above those of another store",
    """leasehold fence raise NAME F --reason TEXT [--yes] [OPTIONS]
       leasehold fence move {NAME...|--all} --from URL --to URL [--dry-run] [--yes] [OPTIONS]""",
    """
raise: makes every later grant of NAME carry a fence higher than F. Use it when a resource refuses the
present holder because it has seen a higher number: the store was restored from a backup.

move: makes every later grant at the store --to carry a fence higher than all that the store --from has
given. Use it when programs change their URL to another kind of store: a guarded resource has seen the
fences of the old one, and would refuse every holder. Stop the programs, move, start them with the new
URL. A name that is held or waited for at the old store is refused with 75; a name that is paused there
can be moved, and `leasehold pause NAME --reason moved --url OLD` keeps programs out that were forgotten.
--all is for all names of the namespace whose fence was not raised by hand. A store that counts each
name by itself and is behind is refused with 78, and the message says what to do instead.

No fence can be lowered again, so both ask for a confirmation on a terminal; without a terminal they
need --yes. The change is logged with its user. A store that does not exist yet, such as a misspelt
file, is refused with 78 and not created.
""",
    """
exit codes:
  0                  raised, moved, or (--dry-run) nothing is in the way
  1                  not confirmed
  75                 move: a name is in use at the old store
  64, 69, 70, 77, 78 as for run

examples:
  leasehold fence raise orders 1794724016973247 --reason "restored a backup"
  leasehold fence move --all --from redis://old --to etcd://h1,h2,h3 --dry-run
  leasehold fence move stock price --from local: --to zk://h1,h2,h3/locks --yes
""",
)

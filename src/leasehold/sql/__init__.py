"""On the resource's side, in a SQL database of the user's own: refusing a late writer.

with database:                      # a sqlite3 connection, or another that is supported
    guard(database, lease)          # the first statement of the transaction
    database.execute("UPDATE ...")
"""

from leasehold.sql.guard import guard, guard_schema

__all__ = ["guard", "guard_schema"]

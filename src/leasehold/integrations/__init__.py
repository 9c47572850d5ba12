"""Thin fits for frameworks: where their client lives, how their errors are answered, and in which order to let go.

Each module is loaded only by who imports it, and needs its framework: `leasehold.integrations.fastapi`, `.starlette`,
`.django`, `.flask`, `.celery`, `.apscheduler`, `.sqlalchemy`. Nothing here is another kind of lock.
"""

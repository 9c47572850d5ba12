"""Idempotency keys in the transaction of the work."""

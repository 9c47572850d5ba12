"""Refusing a late writer: the guard, fenced columns, triggers, the lock of a transaction."""

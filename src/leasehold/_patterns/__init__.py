"""Patterns over locks and records. They use the public face and the ports, and depend on no particular store."""

"""Patterns over locks and records. They use the public face and the ports, and never ask which store they talk to."""

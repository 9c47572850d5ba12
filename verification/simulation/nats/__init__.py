"""NATS in the simulation: the shipped documents, and the kit's rules, over a simulated bucket of JetStream.

`server` answers requests, `wire` carries them, `stage` has the server of a run and what befalls it, `conformance`
compares the server with a real one.
"""

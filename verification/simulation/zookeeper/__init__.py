"""ZooKeeper in the simulation: the shipped protocol over a simulated ensemble.

`tree` has the nodes and what a transaction does to them, `server` the members and their sessions, `wire` carries
requests, `stage` has the ensemble of a run and what befalls it, `conformance` compares the server with a real one.
"""

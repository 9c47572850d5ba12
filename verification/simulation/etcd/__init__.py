"""etcd in the simulation: the shipped protocol over a simulated cluster.

`server` answers requests, `wire` carries them, `stage` has the cluster of a run and what befalls it, `conformance`
compares the server with a real one.
"""

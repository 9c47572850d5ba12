"""MySQL in the simulation: the shipped statements, and the kit's rules over rows, over a simulated server.

`server` takes queries, `wire` carries them, `stage` has the server of a run and what befalls it, `conformance` compares
the server with a real MariaDB.
"""

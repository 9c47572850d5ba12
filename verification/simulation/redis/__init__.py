"""A Redis server inside the simulation: it runs the shipped scripts, and the shipped backend talks to it.

`database` and `lua` are the server's inside, `server` the server, `wire` the network in front of it, `store` what a
process sees, `watcher` what the checks see, `stage` all of that for one run. `conformance` compares the server with
real ones.
"""

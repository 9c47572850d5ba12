"""Redlock in the simulation: the shipped protocol over several simulated Redis servers.

`wire` carries calls from one process to one node; `stage` has the nodes of a run and what befalls them.
"""

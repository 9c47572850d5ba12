"""The protocol, once: pure decisions, and coroutines over the two ports of `leasehold.spi`.

Nothing here imports asyncio, threading, time or random: all of that comes through `Runtime`, so that the same code runs
under threads, asyncio and the simulator.
"""

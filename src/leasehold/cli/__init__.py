"""The command line `leasehold`: runs commands under a lock, and shows operators who holds what.

It uses the public interface only. Every module here keeps its imports small and late, because cron pays for them.
"""

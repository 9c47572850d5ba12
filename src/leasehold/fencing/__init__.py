"""On the resource's side, where the resource is no SQL database: fences for Redis values and for HTTP services.

`leasehold.fencing.redis` keeps a late writer from Redis values, in one script with the write. `leasehold.fencing.http`
carries a fence to a service and lets the service refuse it. What a database needs is in `leasehold.sql`.
"""

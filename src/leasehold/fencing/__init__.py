"""On the resource's side, where the resource is no SQL database: Redis values, HTTP services, values in etcd.

`leasehold.fencing.redis` keeps a late writer from Redis values, in one script with the write. `leasehold.fencing.http`
carries a fence to a service and lets the service refuse it. `leasehold.fencing.etcd` gives the condition that lets etcd
itself refuse a late writer, where the lock is in the same cluster. What a database needs is in `leasehold.sql`.
"""

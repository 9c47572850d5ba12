"""`zk://`: locks in an Apache ZooKeeper ensemble, through kazoo's connection and a recipe of our own."""

from leasehold.backends.zookeeper.backend import ZooKeeperBackend, ZooKeeperStore, open_url

__all__ = ["ZooKeeperBackend", "ZooKeeperStore", "open_url"]

"""The etcd store; `backend` is where to start reading, `layout` says what the keys mean."""

from leasehold.backends.etcd.backend import EtcdBackend, EtcdStore
from leasehold.backends.etcd.options import open_url

__all__ = ["EtcdBackend", "EtcdStore", "open_url"]

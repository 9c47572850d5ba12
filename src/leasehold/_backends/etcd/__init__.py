"""The etcd store. `backend` is the place to start reading; `keys` says what the keys mean."""

from leasehold._backends.etcd.backend import EtcdBackend
from leasehold._backends.etcd.store import EtcdStore, open_url

__all__ = ["EtcdBackend", "EtcdStore", "open_url"]

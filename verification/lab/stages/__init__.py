"""The stores of the matrix, one file each: their servers, what only they can suffer, and what they leave."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from verification.lab.stages.base import Stage

__all__ = ["STORES", "make_stage"]

STORES = (
    "memory",
    "sqlite",
    "redis",
    "sentinel",
    "cluster",
    "redlock",
    "postgresql",
    "mariadb",
    "etcd",
    "zookeeper",
    "nats",
)


def make_stage(store: str, fault: str, folder: Path) -> Stage:
    """The servers of a store, not yet started, made fit for a fault; `folder` is for files of a store without one."""
    stage: Stage = import_module(f"verification.lab.stages.{store}").make(fault, folder)
    return stage

"""Building blocks for stores: the rules of a lock, a full store over documents, URL options, the form of a holder.

A store author needs `leasehold.spi` (the ports), this package, and `leasehold.testing` (the contract). Names are loaded
when they are used: a store that needs one part does not pay for the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold._lazy import LazyNames

if TYPE_CHECKING:
    from leasehold.kit.documents import ClocklessBackend, DocumentBackend, Documents, Notifying, Timed
    from leasehold.kit.holder import holder_fields, holder_from_fields, holder_from_json, holder_to_json
    from leasehold.kit.local_rows import LocalRows
    from leasehold.kit.openings import Openings
    from leasehold.kit.options import Option, choice, duration, flag, read_options, read_tls, text, whole
    from leasehold.kit.records import KeptRecord, LocalRecords
    from leasehold.kit.rows import Crowd, Row, Rows, State
    from leasehold.kit.rules import Queued, check_kind, handed_over_since, place_lifetime
    from leasehold.kit.worker import Worker

_HOMES = {
    "leasehold.kit.documents": ["ClocklessBackend", "DocumentBackend", "Documents", "Notifying", "Timed"],
    "leasehold.kit.holder": ["holder_fields", "holder_from_fields", "holder_from_json", "holder_to_json"],
    "leasehold.kit.local_rows": ["LocalRows"],
    "leasehold.kit.openings": ["Openings"],
    "leasehold.kit.options": ["Option", "choice", "duration", "flag", "read_options", "read_tls", "text", "whole"],
    "leasehold.kit.records": ["KeptRecord", "LocalRecords"],
    "leasehold.kit.rows": ["Crowd", "Row", "Rows", "State"],
    "leasehold.kit.rules": ["Queued", "check_kind", "handed_over_since", "place_lifetime"],
    "leasehold.kit.worker": ["Worker"],
}  # fmt: skip

__all__ = [
    "ClocklessBackend",
    "Crowd",
    "DocumentBackend",
    "Documents",
    "KeptRecord",
    "LocalRecords",
    "LocalRows",
    "Notifying",
    "Openings",
    "Option",
    "Queued",
    "Row",
    "Rows",
    "State",
    "Timed",
    "Worker",
    "check_kind",
    "choice",
    "duration",
    "flag",
    "handed_over_since",
    "holder_fields",
    "holder_from_fields",
    "holder_from_json",
    "holder_to_json",
    "place_lifetime",
    "read_options",
    "read_tls",
    "text",
    "whole",
]

if not TYPE_CHECKING:  # so that type checkers refuse a name that is not there
    __getattr__ = LazyNames(__name__, _HOMES).find


def __dir__() -> list[str]:
    return [*__all__]

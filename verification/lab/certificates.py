"""Certificates for servers of our own: made here and now, valid for loopback, and trusted nowhere else."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import trustme

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Certificates"]


class Certificates:
    """An authority and one certificate that it signed, as files in `folder`.

    `hosts` are the names the certificate is for. `expired`: it was valid until yesterday.
    """

    def __init__(self, folder: Path, *hosts: str, expired: bool = False) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        authority = trustme.CA()
        ended = datetime.now(UTC) - timedelta(days=1)
        leaf = authority.issue_cert(
            *(hosts or ("localhost", "127.0.0.1")),
            not_before=ended - timedelta(days=30) if expired else None,
            not_after=ended if expired else None,
        )
        self.authority, self.certificate, self.key = folder / "ca.pem", folder / "cert.pem", folder / "key.pem"
        authority.cert_pem.write_to_path(str(self.authority))
        leaf.private_key_pem.write_to_path(str(self.key))
        self.certificate.write_bytes(b"".join(blob.bytes() for blob in leaf.cert_chain_pems))
        self.certificate.chmod(0o644)
        self.key.chmod(0o600)

    def context(self) -> ssl.SSLContext:
        """For a client of our own that only wants to talk: the certificate itself is not what it tests."""
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context

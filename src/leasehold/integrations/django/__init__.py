"""Django: locks from the settings, in the right order with transactions.

    INSTALLED_APPS = [..., "leasehold.integrations.django"]
    LEASEHOLD = {"URL": "redis://localhost", "NAMESPACE": "shop", "TTL": 30}

    with hold(f"cart:{cart_id}") as lease:      # first the lock,
        with transaction.atomic():              # then the transaction, which ends before the lock does
            guard(lease)
            ...

`hold` refuses the other order, and refuses to block an event loop.
"""

from leasehold.integrations.django.clients import aclient, client
from leasehold.integrations.django.locks import ahold, guard, hold, locked

__all__ = ["aclient", "ahold", "client", "guard", "hold", "locked"]

"""A project with one application, for `manage.py`."""

from __future__ import annotations

import os

INSTALLED_APPS = ["leasehold.integrations.django"]
LEASEHOLD = {"URL": os.environ["SHOP_LOCKS"], "NAMESPACE": "shop"}
USE_TZ = True

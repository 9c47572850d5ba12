"""The application for INSTALLED_APPS: its checks, and `manage.py leasehold`."""

from __future__ import annotations

from django.apps import AppConfig
from django.core.checks import register
from django.core.signals import setting_changed

from leasehold.integrations.django.checks import check_settings
from leasehold.integrations.django.clients import forget_clients

__all__ = ["LeaseholdConfig"]


class LeaseholdConfig(AppConfig):
    """No models, no migrations."""

    name = "leasehold.integrations.django"
    label = "leasehold"
    verbose_name = "Locks"

    def ready(self) -> None:
        """When all applications are loaded."""
        register(check_settings)
        setting_changed.connect(forget_clients)

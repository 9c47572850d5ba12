"""Answers to the errors of locks: 409 for a busy one, 423 for a paused one, 412 for a late writer, 503 for a loss.

MIDDLEWARE = [..., "leasehold.integrations.django.middleware.LockErrorMiddleware"]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.http import HttpResponse
from django.utils.deprecation import MiddlewareMixin

from leasehold.integrations._refusals import answer_to

if TYPE_CHECKING:
    from django.http import HttpRequest

__all__ = ["LockErrorMiddleware"]


class LockErrorMiddleware(MiddlewareMixin):
    """Turns what a view raised into problem+json; mistakes of the program stay errors. For sync and async views."""

    def process_exception(self, _: HttpRequest, error: Exception) -> Any:
        """The answer; None leaves the error to Django."""
        answer = answer_to(error)
        if answer is None:
            return None
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in answer.headers}
        return HttpResponse(answer.body, status=answer.status, headers=headers)

"""The records in Django's admin: a list, an explanation of each record, and the actions of operators.

Everything is read and changed through `onceward.administration`, as the command line does it. The pages are read-only
without the permissions `retry_record`, `resolve_record` and `forget_record`. Changes are audited with the user's name.
"""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path, reverse

from onceward.administration import Admin, ListingFilter
from onceward.administration.actions import ACTIONS, DESCRIPTIONS
from onceward.administration.model import KeyDetail
from onceward.errors import ConfigurationError
from onceward.protocol.listing import WORK_STATES
from onceward.runtime.threads import run

from .client import once
from .models import Record

PERMISSIONS = {
    "retry": "retry_record",
    "release": "retry_record",
    "resolve": "resolve_record",
    "forget": "forget_record",
}
"""The permission that each verb needs."""

MAX_REASON = 500  # characters


@admin.register(Record)
class RecordAdmin(admin.ModelAdmin):
    """The pages of the records."""

    def get_urls(self) -> list[Any]:
        view = self.admin_site.admin_view
        return [
            path("", view(self.changelist_view), name="onceward_record_changelist"),
            path("<str:record>/", view(self.record_view), name="onceward_record_change"),
            path("<str:record>/<str:action>/", view(self.action_view), name="onceward_record_action"),
        ]

    def has_add_permission(self, request: Any) -> bool:  # noqa: ARG002 (Django's interface)
        return False

    def has_change_permission(self, request: Any, obj: Any = None) -> bool:  # noqa: ARG002 (Django's interface)
        return False

    def has_delete_permission(self, request: Any, obj: Any = None) -> bool:  # noqa: ARG002 (Django's interface)
        return False

    def changelist_view(self, request: Any, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """List the records, newest first."""
        self._require_view(request)
        states = [state for state in WORK_STATES if state.value == request.GET.get("state")]
        wanted = ListingFilter(
            states=tuple(states) or WORK_STATES,
            prefix=request.GET.get("prefix", ""),
            scopes=tuple(filter(None, [request.GET.get("scope")])),
        )
        try:
            page = run(_admin_for(request).keys(wanted, cursor=request.GET.get("cursor")))
        except ConfigurationError as error:
            raise Http404(str(error)) from error
        following = request.GET.copy()
        following["cursor"] = page.cursor or ""
        context = {
            "title": "Records",
            "page": page,
            "states": [state.value for state in WORK_STATES],
            "wanted": request.GET,
            "following": following.urlencode() if page.cursor else "",
        }
        return self._render(request, "list", {**context, **(extra_context or {})})

    def record_view(self, request: Any, record: str) -> HttpResponse:
        """Explain one record."""
        self._require_view(request)
        detail = _detail(request, record)
        offered = [
            {"option": option, "text": DESCRIPTIONS[option.action]}
            for option in detail.actions
            if option.allowed and _may(request, option.action)
        ]
        return self._render(request, "record", {"title": detail.row.key, "detail": detail, "offered": offered})

    def action_view(self, request: Any, record: str, action: str) -> HttpResponse:
        """Do what the form of the page asks for, if the record is still the one that the page showed."""
        self._require_view(request)
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        if action not in ACTIONS:
            raise Http404(action)
        if not _may(request, action):
            raise PermissionDenied
        operator = _admin_for(request)
        try:
            preview = run(operator.preview(ACTIONS[action], ids=[record]))
        except ConfigurationError as error:
            raise Http404(str(error)) from error
        if [str(target.token) for target in preview.targets] not in ([request.POST.get("token")], []):
            messages.error(request, "The record has changed since the page was shown. Nothing was done.")
        else:
            done = run(operator.apply(preview, why=request.POST.get("why", "")[:MAX_REASON]))
            for refused in (*preview.refused, *done.refused):
                messages.error(request, f"Nothing was done: {refused.reason}")
            for target in done.done:
                messages.success(request, f"{action}: {target.key}")
        return HttpResponseRedirect(reverse("admin:onceward_record_change", args=[record]))

    def _require_view(self, request: Any) -> None:
        if not self.has_view_permission(request):
            raise PermissionDenied

    def _render(self, request: Any, name: str, context: dict[str, Any]) -> HttpResponse:
        context = {**self.admin_site.each_context(request), "opts": self.opts, **context}
        return TemplateResponse(request, f"onceward/admin/{name}.html", context)


def _admin_for(request: Any) -> Admin:
    return Admin.of(once, who=f"{request.user.get_username()} in Django's admin")


def _detail(request: Any, record: str) -> KeyDetail:
    try:
        detail = run(_admin_for(request).key(record))
    except ConfigurationError as error:
        raise Http404(str(error)) from error
    if detail is None:
        raise Http404(record)
    return detail


def _may(request: Any, action: str) -> bool:
    """Return whether the user has the permission for this action."""
    return bool(request.user.has_perm(f"onceward.{PERMISSIONS[ACTIONS[action].verb]}"))

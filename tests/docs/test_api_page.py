"""The overview of the Python interface has every store, method, function and option that there is."""

from __future__ import annotations

import importlib
import inspect
import re
from typing import TYPE_CHECKING, Any

import pytest

import leasehold
from leasehold._urls import SCHEMES, find_store
from tools import draw_docs, interface, store_urls

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = draw_docs.ROOT / "docs" / "reference" / "api.md"
OVERVIEW = PAGE.read_text()
EVERYWHERE = OVERVIEW + "".join(page.read_text() for page in sorted(PAGE.with_suffix("").glob("*.md")))
RESOURCE_SIDE = [name for name in interface.PUBLIC_MODULES if name.startswith(("leasehold.sql", "leasehold.fencing"))]
OWNERS = {"client": leasehold.Client, "lock": leasehold.Lock, "lease": leasehold.Lease}
CALL = re.compile(r"`(?P<name>[\w.]+)\((?P<arguments>[^`]*)\)`")
TEXT = re.compile(r"`[^`]+`")
ONLY_REFUSED = {"postgresql+asyncpg"}


def is_named(name: str, page: str) -> bool:
    return any(re.search(rf"(?<!\w){name}(?!\w)", text) for text in TEXT.findall(page))


def functions(module: str) -> list[str]:
    """The functions of a module, without those that are the async twin of another."""
    found = importlib.import_module(module)
    names = {name for name in found.__all__ if inspect.isfunction(getattr(found, name))}
    return sorted(name for name in names if name.removesuffix("_async") not in names - {name})


def calls() -> Iterator[Any]:
    """Each call on the page that names its arguments, and what is called; one with an ellipsis leaves some out."""
    for call in CALL.finditer(OVERVIEW):
        owner, _, name = call["name"].rpartition(".")
        sources: list[Any] = [OWNERS[owner]] if owner in OWNERS else []
        if owner.startswith("leasehold"):
            sources = [importlib.import_module(owner)]
        elif not owner:
            sources = [leasehold, importlib.import_module("leasehold.sql")]
        called = next((getattr(source, name) for source in sources if hasattr(source, name)), None)
        if called is not None and "…" not in call["arguments"]:
            yield pytest.param(called, call["arguments"], id=call["name"])


@pytest.mark.parametrize("name", [name for name in dir(leasehold.Client) if not name.startswith("_")])
def test_every_method_of_a_client_is_on_the_overview(name: str) -> None:
    assert is_named(rf"client\.{name}", OVERVIEW)


@pytest.mark.parametrize("module", RESOURCE_SIDE)
def test_everything_for_the_resource_s_side_is_on_a_page_and_each_function_on_the_overview(module: str) -> None:
    assert [name for name in importlib.import_module(module).__all__ if not is_named(name, EVERYWHERE)] == []
    assert [name for name in functions(module) if not is_named(rf"[\w.]*{name}", OVERVIEW)] == []


@pytest.mark.parametrize(("called", "arguments"), list(calls()))
def test_a_call_on_the_overview_has_every_option_that_there_is(called: Any, arguments: str) -> None:
    options = [each.name for each in inspect.signature(called).parameters.values() if each.kind is each.KEYWORD_ONLY]
    assert [name for name in options if not re.search(rf"\b{name}\b", arguments)] == []


def test_every_scheme_of_a_store_is_in_the_table_of_stores() -> None:
    written = {url.partition(":")[0] for each in store_urls.STORE_URLS for url in (*each.urls, *each.with_tls)}
    assert written | ONLY_REFUSED == set(SCHEMES)
    assert all(f"`{scheme}://`" in OVERVIEW for scheme in ONLY_REFUSED)


@pytest.mark.parametrize("url", [url for each in store_urls.STORE_URLS for url in (*each.urls, *each.with_tls)])
def test_a_url_in_the_table_of_stores_is_one_that_opens(url: str) -> None:
    assert hasattr(find_store(url), "open_backend")

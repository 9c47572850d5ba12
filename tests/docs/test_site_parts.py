"""The parts that the site is built with: navigation, links out of docs/, diagrams, the pages of the interface."""

from __future__ import annotations

import pytest

from tools import draw_docs, interface
from tools.site import diagrams, navigation, outside, start_page, tables

SEQUENCE = """
sequenceDiagram
    participant a as Worker A
    participant s as Store
    a->>s: acquire
    s-->>a: granted, fence 33
    Note over a,s: a pause that is longer than the ttl
    alt the guard is there
        a-xs: late write
    else it is not
        a->>a: wakes up
    end
"""


def test_the_navigation_is_what_the_start_page_lists() -> None:
    docs = outside.DOCS
    tabs = navigation.navigation(docs)
    assert tabs[0] == {"Start": "index.md"}
    text = str(tabs)
    missing = [page for page in docs.rglob("*.md") if repr(str(page.relative_to(docs))) not in text]
    assert missing == [], "each page needs a line in docs/index.md"


def test_a_link_out_of_docs_becomes_a_page_of_the_site() -> None:
    page = outside.DOCS / "how-to" / "page.md"
    text = (
        "[us](../../CONTRIBUTING.md#tests) [code](../../src/leasehold/spi.py) [all](../../src)\n```\n[x](y.md)\n```\n"
    )
    assert outside.relinked(text, page, "how-to/page.md") == (
        "[us](../project/contributing.md#tests) [code](../source/src/leasehold/spi.py.md) all\n```\n[x](y.md)\n```\n"
    )
    assert outside.relinked("[all](../../examples)", page, "how-to/page.md") == "[all](../examples.md)"


def test_a_sequence_is_drawn_with_its_words_and_a_lost_message_ends_in_a_cross() -> None:
    drawn = diagrams.draw(SEQUENCE)
    assert all(words in drawn for words in ("Worker A", "granted, fence 33", "it is not", "wakes up"))
    assert drawn.count("url(#cross)") == 1
    assert drawn.count("url(#arrow)") == 3


def test_a_graph_has_each_node_below_those_that_lead_to_it() -> None:
    drawn = diagrams.draw(
        "stateDiagram-v2\n[*] --> held: granted\nheld --> lost: lose\nheld --> lost: break\nlost --> [*]"
    )
    places = [drawn.index(f">{words}<") for words in ("granted", "lose or break", "held", "lost")]
    assert places == sorted(places)
    assert drawn.count('class="end"') == 2


@pytest.mark.parametrize("source", ["pie\n a: 1", "sequenceDiagram\n a teleports to b", "flowchart TD\n a ==> b"])
def test_a_diagram_that_cannot_be_drawn_stops_the_build(source: str) -> None:
    with pytest.raises(ValueError, match=r"not known to the site|cannot|but not"):
        diagrams.draw(source)


def test_groups_of_the_start_page_become_cards() -> None:
    group = '<h3 id="b">B</h3>\n<ul>\n<li>1</li>\n</ul>\n'
    html = f'<h2 id="a">A</h2>\n{group}{group}<p>x</p>'
    assert start_page.in_columns(html).count('<div class="card">') == 2
    assert start_page.in_columns(html).count('<div class="cards">') == 1


def test_a_long_name_in_a_cell_can_be_broken_at_its_seams_only() -> None:
    html = "<p><code>a_name_of_many_words_in_a_paragraph</code></p><td><code>test_late_writer_is_refused</code> x</td>"
    assert tables.breakable(html) == (
        "<p><code>a_name_of_many_words_in_a_paragraph</code></p>"
        "<td><code>test_<wbr>late_<wbr>writer_<wbr>is_<wbr>refused</code> x</td>"
    )


def test_every_public_name_is_on_a_page_of_the_interface() -> None:
    pages = sorted((draw_docs.ROOT / "docs" / "reference" / "api").glob("*.md"))
    shown = [name for page in pages for name in interface.names_on(page.read_text())]
    assert len(shown) == len(set(shown)), "a name is on two pages"
    assert interface.public_names() == set(shown), "name it in an `interface` mark of a page in docs/reference/api"

"""The documentation is true: its Python blocks run as they are, and its links lead somewhere.

The blocks of a page run one after the other in one process, with a home directory and a store of their own, and then
once more in another process. A page that names `DATABASE_URL`, `MARIADB_URL` or `REDIS_URL` in its blocks gets a
PostgreSQL, MariaDB or Redis. A block whose first line is `# not run: reason` is only compiled.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.servers.mariadb import fresh_mariadb
from tests.sql.desks import fresh_schema

if TYPE_CHECKING:
    from verification.lab.redis import RedisServer

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^(?P<indent> *)```python\n(?P<code>.*?)^ *```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
NOT_RUN = re.compile(r"# not run: \S+")

# Each block is compiled under the name and the line that it has in its page, so that a traceback points there.
# The page runs in a child, and once more in another: a reader who mistyped one line runs it again. What it imports is
# loaded before they are started, because that takes longer than most pages.
RUNNER = """
import ast, contextlib, importlib, os, sys
blocks = [block.split("\\x01") for block in sys.stdin.read().split("\\x00")]
compiled = [(compile("\\n" * int(line) + code, page, "exec"), code) for page, line, code in blocks]
for _, code in compiled:
    for node in ast.walk(ast.parse(code)):
        names = [alias.name for alias in node.names] if isinstance(node, (ast.Import, ast.ImportFrom)) else []
        with contextlib.suppress(Exception):  # the block itself shows what is wrong with it
            if isinstance(node, ast.Import):
                for name in names:
                    importlib.import_module(name)
            elif names:
                module = importlib.import_module(node.module)
                for name in names:
                    getattr(module, name, None)
for _ in range(2):
    child = os.fork()
    if child == 0:
        namespace = {"__name__": "__main__"}
        for block, code in compiled:
            if not code.startswith("# not run: "):
                exec(block, namespace)
        sys.exit()
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        sys.exit(1)
"""


def blocks(text: str) -> list[tuple[int, str]]:
    """Every Python block with the number of lines before it."""
    return [(text[: block.start("code")].count("\n"), block["code"]) for block in BLOCK.finditer(text)]


def broken_links(page: Path, text: str) -> list[str]:
    """The links of a page that name a file which does not exist, or a heading that the file does not have."""
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    targets = [link["target"] for link in LINK.finditer(prose)]
    return [target for target in targets if "://" not in target and not _leads_somewhere(page, target)]


def _leads_somewhere(page: Path, target: str) -> bool:
    path, _, heading = target.partition("#")
    file = page.parent / path if path else page
    if not file.exists():
        return False
    return not heading or heading in {_anchor(line) for line in file.read_text().splitlines() if line.startswith("#")}


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lstrip("# ").lower()).replace(" ", "-")


def run_blocks(
    page: str, found: list[tuple[int, str]], home: Path, servers: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run blocks in order in one process, and again in another; `servers` are variables that say where servers are."""
    environment = {
        **os.environ,
        **(servers or {}),
        "HOME": str(home),
        "LEASEHOLD_URL": f"sqlite:///{home}/locks.db",
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]),
    }
    for variable in ("XDG_STATE_HOME", "XDG_RUNTIME_DIR"):
        environment.pop(variable, None)
    text = "\x00".join(f"{page}\x01{line}\x01{code}" for line, code in found)
    command = [sys.executable, "-W", "error", "-c", RUNNER]
    return subprocess.run(
        command, input=text, env=environment, cwd=home, text=True, capture_output=True, timeout=60, check=False
    )


def servers_for(text: str, request: pytest.FixtureRequest) -> dict[str, str]:
    """The servers that a page names by their variables, started when the first page needs them."""
    servers = {}
    if "DATABASE_URL" in text:
        servers["DATABASE_URL"] = fresh_schema(request.getfixturevalue("postgres"))
    if "MARIADB_URL" in text:
        servers["MARIADB_URL"] = fresh_mariadb(request.getfixturevalue("mariadb"))
    if "REDIS_URL" in text:
        server: RedisServer = request.getfixturevalue("redis_server")
        server.flush()
        servers["REDIS_URL"] = server.url
    return servers


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_python_blocks_of_a_page_run_as_they_are_and_again(
    page: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    found = blocks(page.read_text())
    assert page.read_text().count("```python") == len(found), "a block is not closed, or not found"
    for _, code in found:
        assert not code.startswith("# not run") or NOT_RUN.match(code), "say why it is not run"
    if found:
        servers = servers_for("".join(code for _, code in found), request)
        done = run_blocks(page.name, found, tmp_path, servers)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_names_the_servers_that_its_blocks_need_before_the_first_of_them(page: Path) -> None:
    text = page.read_text()
    for line, code in blocks(text):
        before = "\n".join(text.splitlines()[:line])
        needed = [name for name in ("DATABASE_URL", "MARIADB_URL", "REDIS_URL") if name in code]
        assert [name for name in needed if name not in before] == []


@pytest.mark.parametrize(
    "page",
    [
        page
        for page in sorted(
            [*ROOT.glob("*.md"), *(page for folder in ROOT.glob("[!.]*/") for page in folder.rglob("*.md"))]
        )
        if not any(part.startswith(".") for part in page.relative_to(ROOT).parts)
    ],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    assert broken_links(page, page.read_text()) == []


def test_the_readme_has_blocks_to_run() -> None:
    assert len(blocks(PAGES[0].read_text())) >= 3


def test_a_block_that_fails_is_noticed_with_its_place(tmp_path: Path) -> None:
    page = "text\n\n```python\nx = 1\n```\n\n```python\nassert x == 2\n```\n"
    done = run_blocks("page.md", blocks(page), tmp_path)
    assert done.returncode == 1
    assert 'File "page.md", line 8' in done.stderr


def test_a_block_that_is_not_run_must_still_be_python(tmp_path: Path) -> None:
    page = "```python\n# not run: needs a server\n1 +\n```\n"
    assert "SyntaxError" in run_blocks("page.md", blocks(page), tmp_path).stderr


def test_a_broken_link_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A heading\n")
    assert broken_links(page, "[a](page.md#a-heading) [b](#a-heading) [c](https://example.org)") == []
    assert broken_links(page, "[a](nowhere.md) [b](#another)") == ["nowhere.md", "#another"]

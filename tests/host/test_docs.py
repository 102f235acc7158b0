"""The documentation site builds without a warning, shows the API, and finds its dead or foreign links."""

from __future__ import annotations

import html
import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from needs import needs
from support.browser import browse

needs("docs")

ROOT = Path(__file__).parents[2]


def load_pages() -> Any:
    spec = importlib.util.spec_from_file_location("pages", ROOT / "docs" / "_site" / "pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_pages_show_the_api_and_what_they_link_to(site: Path) -> None:
    api = html.unescape(re.sub(r"<[^>]+>", "", (site / "docs" / "reference" / "api.html").read_text()))
    for text in ("LocalCluster", "load_state_dict", "register_comm_hook", "A frame is damaged", "PeerError"):
        assert text in api, text
    assert not re.findall(r"^\s*:::", api, re.MULTILINE)
    assert "error_feedback" in (site / "configs" / "default.yaml.html").read_text()
    assert "robustness.html" in (site / "docs" / "results" / "index.html").read_text()
    home = (site / "index.html").read_text()
    assert "compressed gradient allreduce" in home.lower()
    for door in ("how-to/ddp.html", "how-to/compare-methods.html", "how-to/simulate-the-nic.html"):
        assert f'href="docs/{door}"' in home
    assert (
        "<th>Default</th>" in (site / "docs" / "reference" / "api.html").read_text()
    )  # arguments are tables
    assert "ConfigError" in (site / "search" / "search_index.json").read_text()


def test_pages_fit_a_telephone_and_a_desk_without_an_error(site: Path, tmp_path: Path) -> None:
    """In a browser: no page is wider than its window, and the console is empty. A bad page is noticed."""
    needs("chromium")
    shutil.copytree(site, tmp_path / "site")
    bad = '<div style="width: 2000px">wide</div><script>missing()</script>'
    (tmp_path / "site" / "bad.html").write_text(bad)
    pages = sorted(
        path.relative_to(tmp_path / "site").as_posix() for path in (tmp_path / "site").rglob("*.html")
    )
    wide, errors = browse(tmp_path / "site", pages, [1300, 390])
    assert {page for page, *_ in wide} == {"bad.html"}, wide
    assert [line for line in errors if "/bad.html" not in line] == []
    assert "missing is not defined" in " ".join(errors)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('<a href="b.html">', "a.html: b.html leads nowhere"),
        ('<a href="#there">', "a.html: #there has no such anchor"),
        ('<img src="images/none.png">', "a.html: images/none.png leads nowhere"),
        ('<script src="https://cdn.example/x.js">', "a.html: loads https://cdn.example/x.js"),
        ('<a href="https://example.org/"><h2 id="there"></h2><a href="a.html#there">', None),
    ],
)
def test_links_of_the_site_are_checked(body: str, said: str | None, tmp_path: Path) -> None:
    from mkdocs.exceptions import PluginError

    (tmp_path / "a.html").write_text(f"<html>{body}</html>")
    config = SimpleNamespace(site_dir=str(tmp_path))
    if said is None:
        load_pages().on_post_build(config)
    else:
        with pytest.raises(PluginError, match=re.escape(said)):
            load_pages().on_post_build(config)


def test_a_list_below_a_paragraph_stays_a_list_and_code_stays_code() -> None:
    text = "It has:\n- one\n- two\n\n```\nname:\n- one\n```\n"
    page = SimpleNamespace(file=SimpleNamespace(src_uri="docs/x.md"))
    assert load_pages().on_page_markdown(text, page) == text.replace("It has:\n", "It has:\n\n")

"""MkDocs hooks: the repository's pages at their own places, and a look at every link of the finished site.

README.md and what it links to lie outside docs/, where MkDocs looks for pages. So pages keep their paths from
the root, and files that they link to and that are none (configurations, sources) become pages that show them.
home.md, beside this file, is the site's first page; README.md is about.md there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path, PurePosixPath
from posixpath import normpath
from typing import Any
from urllib.parse import unquote, urlsplit

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files, InclusionLevel

ROOT = Path(__file__).parents[2]
OWN = Path(__file__).parent.name
LINK = re.compile(r"(?<=\]\()([^()\s#]+)(?=[#)])")
# A list right below a paragraph, which is one for Git hosts and none for Python-Markdown; or a block of code.
GLUED = re.compile(
    r"^(?P<fence>```|~~~).*?^(?P=fence)$|^(?![\s|#]|[-*] |\d+\. )(?P<line>[^\n]+)\n(?=[-*] |1\. )",
    re.M | re.S,
)
PLACES = {"index.md": f"docs/{OWN}/home.md", "about.md": "README.md"}  # of pages that lie elsewhere
LANGUAGES = {".yaml": "yaml", ".py": "python", ".cff": "yaml"}


def on_config(config: Any) -> None:
    """Replace each folder in `nav` by the pages in it."""
    _list_folders(config.nav)


def _list_folders(sections: list[Any]) -> None:
    for section in sections:
        for title, item in section.items() if isinstance(section, dict) else ():
            if isinstance(item, list):
                _list_folders(item)
            elif item.endswith("/"):
                pages = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / item).glob("*.md"))
                section[title] = sorted(pages, key=lambda name: not name.endswith("README.md"))


def on_files(files: Files, config: Any) -> Files:
    """Return the pages with their paths from the root, the pages at the root, and shown sources."""
    ours = [file for file in files if file.src_dir == config.docs_dir]
    for file in ours:
        files.remove(file)
    names = [f"docs/{file.src_uri}" for file in ours if not file.src_uri.startswith(f"{OWN}/")]
    names += [path.name for path in ROOT.glob("*.md") if path.name != "README.md"] + list(PLACES)
    for name in names:
        files.append(File.generated(config, name, abs_src_path=str(_source(name))))
    files.append(File.generated(config, "site.css", abs_src_path=str(Path(__file__).with_name("site.css"))))
    for name in sorted({name for page in names if page.endswith(".md") for name in _linked(page)}):
        files.append(_shown(name, config))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let links to folders and sources lead to their pages."""

    def lead(link: re.Match[str]) -> str:
        name = _named(page.file.src_uri, link[1])
        if name == "README.md":
            return link[1].replace(name, "about.md")
        if name is not None and (ROOT / name).is_dir():
            return f"{link[1].rstrip('/')}/README.md"  # of the folder itself, or its list of pages
        return link[1] if _target(page.file.src_uri, link[1]) is None else f"{link[1]}.md"

    markdown = GLUED.sub(lambda found: found[0] + "\n" if found["line"] else found[0], markdown)
    return LINK.sub(lead, markdown)


def _source(name: str) -> Path:
    return ROOT / PLACES.get(name, name)


def _shown(name: str, config: Any) -> File:
    """Return a page that shows the file, or lists the pages of the folder, `name`."""
    path = ROOT / name
    if path.is_dir():
        name, pages = f"{name}/README", sorted(path.glob("*.md"))
        lines = [
            f"- [{page.read_text(encoding='utf-8').partition(chr(10))[0].lstrip('# ')}]({page.name})"
            for page in pages
        ]
        content = "\n".join(lines)
    else:
        language = LANGUAGES.get(path.suffix, "text")
        content = f"~~~~ {language}\n{path.read_text(encoding='utf-8')}\n~~~~"
    content = f"# {name.removesuffix('/README')}\n\n{content}\n"
    return File.generated(config, f"{name}.md", content=content, inclusion=InclusionLevel.NOT_IN_NAV)


def _linked(page: str) -> Iterator[str]:
    for link in LINK.findall(_source(page).read_text(encoding="utf-8")):
        name = _target(page, link)
        if name is not None:
            yield name


def _target(page: str, link: str) -> str | None:
    """Return the file or folder from the root that `link` on `page` leads to; None for pages and the web."""
    name = _named(page, link)
    if name is None or (ROOT / name / "README.md").exists():
        return None
    return name if PurePosixPath(name).suffix not in {".md", ".png"} else None


def _named(page: str, link: str) -> str | None:
    """Return what `link` on `page` leads to, from the root; None for the web and what is not there."""
    name = normpath(str(PurePosixPath(page).parent / unquote(link)))
    return name if not urlsplit(link).scheme and _source(name).exists() else None


class _Page(HTMLParser):
    """Collects what a page links to, what it loads, and its anchors."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.loads: set[str] = set()
        self.anchors: set[str] = {""}
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.add(given["href"])
        elif tag != "a":
            self.loads |= {given[name] for name in ("href", "src") if name in given}


def on_post_build(config: Any) -> None:
    """Raise unless every link within the site has page and anchor, and nothing is loaded from elsewhere."""
    site = Path(config.site_dir)
    pages = {path: _Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    wrong = []
    for path, page in pages.items():
        where = path.relative_to(site)
        wrong += [f"{where}: loads {url}" for url in page.loads if urlsplit(url).netloc]
        for url in page.links | page.loads:
            parts = urlsplit(url)
            if (
                parts.scheme or parts.netloc or (where.name == "404.html")
            ):  # its links are from the site's root
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.is_file():
                wrong.append(f"{where}: {url} leads nowhere")
            elif target in pages and unquote(parts.fragment) not in pages[target].anchors:
                wrong.append(f"{where}: {url} has no such anchor")
    if wrong:
        raise PluginError("links of the site:\n  " + "\n  ".join(sorted(wrong)))

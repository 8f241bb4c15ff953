"""Sphinx makes a site of docs/ and of the tree's own pages: `make site`.

    build/site-tools/bin/sphinx-build -W --keep-going -c docs . build/site

The source is the whole tree, so that links out of docs/ stay links. The navigation is
that of the pages named README.md: the first link of each row of their tables. The site
loads nothing from elsewhere; Sphinx's search reads its index as a script, without a
server.
"""

import os
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROW = re.compile(r"^\|.*?\]\(([\w./-]+\.md)\)|^## (.+)$", re.M)
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([\w./-]+?)/?\)")
# What a browser would load from another host
LOADED = re.compile(
    r"<(?:script|link|img|iframe|source)\b[^>]*\b(?:src|href)=[\"'](?:https?:)?//[^>]*>"
    r"|url\([\"']?(?:https?:)?//[^)]*\)|@import[^;]*//[^;]*;")

project = "cutthrough"
extensions = ["myst_parser"]
include_patterns = ["*.md", "docs/*.md", "docs/*/*.md"]
exclude_patterns = [".*", "build", "dist", "bench", "changes", "tests"]
root_doc = "docs/README"
myst_heading_anchors = 6
# CommonMark alone: {word} and % are text
myst_disable_syntax = ["myst_role", "myst_target", "myst_line_comment",
                       "myst_block_break"]
# A file that is no page, such as a program or a result, is copied
suppress_warnings = ["misc.highlighting_failure"]
highlight_language = "none"

html_theme = "furo"
html_title = "cutthrough"
html_static_path = html_css_files = ["site.css"]
html_copy_source = html_show_sourcelink = html_show_sphinx = False
html_show_copyright = html_use_index = False


def navigation(index: Path) -> dict[str, list[Path]]:
    """Returns the pages of an index by section; "" before the first one."""
    sections: dict[str, list[Path]] = {"": []}
    section = ""
    for link, heading in ROW.findall(index.read_text()):
        section = heading or section
        if link:
            sections.setdefault(section, []).append((index.parent / link).resolve())
    return {name: listed for name, listed in sections.items() if listed}


def read_source(app, name: str, content: list[str]) -> None:
    """Adds the navigation to an index. A link to a directory, which a site cannot show,
    becomes text."""
    page = ROOT / f"{name}.md"

    def link(match: re.Match[str]) -> str:
        return match[1] if (page.parent / match[2]).is_dir() else match[0]

    content[0] = LINK.sub(link, content[0])
    if page.name == "README.md" and page.parent != ROOT:
        for section, listed in navigation(page).items():
            names = (os.path.relpath(one.with_suffix(""), page.parent)
                     for one in listed)
            content[0] += "\n".join([
                "\n\n```{toctree}", ":hidden:",
                *([f":caption: {section}"] if section else []), *names, "```"])


def finish(app, error: Exception | None) -> None:
    """Makes index.html, which leads to the index of the pages. Raises ValueError if a
    page would load something from elsewhere."""
    if error is not None:
        return
    Path(app.outdir, "index.html").write_text(
        '<!doctype html><meta charset="utf-8"><title>cutthrough</title>'
        '<meta http-equiv="refresh" content="0; url=docs/README.html">'
        '<a href="docs/README.html">cutthrough</a>\n')
    for path in Path(app.outdir).rglob("*"):
        if path.suffix in (".html", ".css") and (
                loaded := LOADED.search(path.read_text())):
            raise ValueError(f"{path}: {loaded[0]}")


def setup(app) -> None:
    app.connect("source-read", read_source)
    app.connect("build-finished", finish)

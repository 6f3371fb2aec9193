"""A Markdown extension for the documentation site: links from docs/ to other files of the repository become plain text.

Set `url` in mkdocs.yml to the address of the repository's files, and they become links to it.
"""

from typing import Any
from xml.etree.ElementTree import Element

from markdown import Markdown
from markdown.extensions import Extension
from markdown.treeprocessors import Treeprocessor

BEFORE_LINKS_ARE_CHECKED = 5  # MkDocs checks them at priority 0, after inline patterns at 20


class RepositoryLinks(Treeprocessor):
    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url

    def run(self, root: Element) -> None:
        for link in root.iter("a"):
            path = link.get("href", "")
            if not path.startswith("../"):
                continue
            if self.url:
                link.set("href", f"{self.url}/{path.removeprefix('../')}")
            else:
                link.tag = "span"
                del link.attrib["href"]


class RepositoryLinksExtension(Extension):
    def __init__(self, **options: Any) -> None:
        self.config = {"url": ["", "Address of the repository's files"]}
        super().__init__(**options)

    def extendMarkdown(self, md: Markdown) -> None:
        md.treeprocessors.register(RepositoryLinks(self.getConfig("url")), "repository_links", BEFORE_LINKS_ARE_CHECKED)


def makeExtension(**options: Any) -> Extension:
    return RepositoryLinksExtension(**options)

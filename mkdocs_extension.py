"""A Markdown extension for the documentation site, for MkDocs and Zensical.

- Links from docs/ to other files of the repository become plain text, or links below `url` if mkdocs.yml sets it.
- Examples of docstrings, lines that begin with >>>, become code.
"""

import re
from typing import Any
from xml.etree.ElementTree import Element

from markdown import Markdown
from markdown.extensions import Extension
from markdown.preprocessors import Preprocessor
from markdown.treeprocessors import Treeprocessor

BEFORE_CODE_BLOCKS = 28  # they are found at priority 25
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


class DocstringExamples(Preprocessor):
    def run(self, lines: list[str]) -> list[str]:
        text = re.sub(r"^>>> .*(\n.+)*", r"```python\n\g<0>\n```", "\n".join(lines), flags=re.M)
        return text.split("\n")


class SiteExtension(Extension):
    def __init__(self, **options: Any) -> None:
        self.config = {"url": ["", "Address of the repository's files"]}
        super().__init__(**options)

    def extendMarkdown(self, md: Markdown) -> None:
        md.treeprocessors.register(RepositoryLinks(self.getConfig("url")), "repository_links", BEFORE_LINKS_ARE_CHECKED)
        md.preprocessors.register(DocstringExamples(md), "docstring_examples", BEFORE_CODE_BLOCKS)


def makeExtension(**options: Any) -> Extension:
    return SiteExtension(**options)

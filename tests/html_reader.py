"""Reads the HTML pages that tests check."""

from html.parser import HTMLParser


class HtmlReader(HTMLParser):
    """The tags, ids, links, images, table rows and text of a page."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.ids, self.links, self.images, self.rows = [], [], [], [], []
        self.text = ""
        self.in_cell = False
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.tags.append(tag)
        self.ids += [attributes["id"]] if "id" in attributes else []
        self.links += [attributes["href"]] if tag == "a" else []
        self.images += [attributes["src"]] if tag == "img" else []
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            self.in_cell = True

    def handle_endtag(self, tag):
        self.in_cell = self.in_cell and tag not in ("td", "th")

    def handle_data(self, data):
        self.text += data
        if self.in_cell:
            self.rows[-1][-1] += data

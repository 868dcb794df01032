#!/usr/bin/env python3
"""Every link of a built site leads to a file of the site and to an anchor there, and a page loads nothing from elsewhere.

    links.py SITE
"""

import functools
import html.parser
import pathlib
import sys
import urllib.parse


class Page(html.parser.HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.anchors, self.links, self.loaded = {"", "top"}, [], []
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.anchors.update(values[each] for each in ("id", "name") if values.get(each))
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
        elif tag in ("link", "script", "img", "iframe"):
            self.loaded += [values[each] for each in ("href", "src") if values.get(each)]


def wrong(site):
    """A line for each link that leads nowhere; and how many were followed."""
    read = functools.cache(Page)
    lines, count = [], 0
    # Not that one, which is served at any depth, nor the pages of rustdoc, which follows their links itself.
    ours = [each for each in sorted(site.rglob("*.html")) if each.name != "404.html" and each.relative_to(site).parts[0] != "rust"]
    for path in ours:
        page = read(path)
        for link in page.links + page.loaded:
            url = urllib.parse.urlsplit(link)
            if url.scheme or url.netloc:
                if link in page.loaded and url.scheme != "data":
                    lines.append(f"{path.relative_to(site)}: loads {link}")
                continue
            count += 1
            there = (path.parent / urllib.parse.unquote(url.path)).resolve() if url.path else path
            anchor = urllib.parse.unquote(url.fragment)
            if not there.is_file() and not (there / "index.html").is_file():
                lines.append(f"{path.relative_to(site)}: {link}: there is no such file")
            elif anchor and there.suffix == ".html" and anchor not in read(there).anchors:
                lines.append(f"{path.relative_to(site)}: {link}: the page has no such anchor")
    return lines, count, len(ours)


if __name__ == "__main__":
    found, links, pages = wrong(pathlib.Path(sys.argv[1]).resolve())
    sys.exit("\n".join(found)) if found else print(f"{links} links of {pages} pages lead somewhere")

"""What tests of the site share: pages as text, with their links and the names that links may lead to; screens."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

_LOADED = {"img": "src", "script": "src", "link": "href", "iframe": "src", "source": "src"}


@dataclass
class Page(HTMLParser):
    """What a page has.

    Attributes:
        links: of its anchors.
        loaded: what a browser loads to show it.
        names: of its elements.
    """

    path: Path
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    names: set[str] = field(default_factory=set)

    def __post_init__(self):
        super().__init__()
        self.feed(self.path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.names |= {found.get("id"), found.get("name")} - {None}
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        wanted = found.get(_LOADED.get(tag, ""))
        if wanted and found.get("rel") not in ("canonical", "next", "prev"):
            self.loaded.append(wanted)


@cache
def pages(site: Path) -> dict[Path, Page]:
    """Every page but that of errors, whose links start at a server's root."""
    return {path: Page(path) for path in sorted(site.rglob("*.html")) if path.name != "404.html"}


def screen(driver, width: int, height: int) -> None:
    """Makes the page's window so large, in CSS pixels; windows themselves have a least width."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

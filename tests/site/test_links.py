"""Every link of every page leads somewhere, and nothing is fetched from elsewhere."""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit

from pages import pages

from skuda.generated import CATALOG


def test_every_operation_has_a_page(site):
    assert {path.stem for path in (site / "operations").glob("*.html")} == {*CATALOG.modules, "index"}


def test_every_link_leads_somewhere(site):
    found, broken, checked = pages(site), [], 0
    for path, page in found.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            checked += 1
            if target.is_dir():
                target /= "index.html"
            if not target.exists():
                broken.append((str(path), link, "no such file"))
            elif parts.fragment and target.suffix == ".html" and unquote(parts.fragment) not in found[target].names:
                broken.append((str(path), link, "no such place on that page"))
    assert broken == []
    assert checked > 10_000


def test_nothing_is_loaded_from_elsewhere(site):
    for path, page in pages(site).items():
        for wanted in page.loaded:
            assert not urlsplit(wanted).scheme and not wanted.startswith("//"), (path, wanted)
            assert (path.parent / unquote(urlsplit(wanted).path)).exists(), (path, wanted)
    for path in site.rglob("*.css"):
        assert not re.findall(r"url\([\"']?(?:https?:)?//[^)]*\)", path.read_text(encoding="utf-8")), path


def test_links_to_other_sites_are_few_and_known(site):
    hosts = {urlsplit(link).hostname for page in pages(site).values() for link in page.links if urlsplit(link).scheme}
    assert hosts <= {"squidfunk.github.io"}, hosts  # the theme's own line at the foot of each page

"""Pages of the site and the files of the repository that they are made of; links between the ones and the others."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

FILES = "files"  # where files that are no pages lie on the site
_LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?\)")


class BrokenLink(Exception):
    """A page links to what is not there."""


class Links:
    """Rewrites links of Markdown from where a file is in the repository to where its page is on the site.

    Args:
        repository: its root.
        pages: by path in the repository, of a file or a folder, the path of the page.
        out: the folder that the site is made from; other files that pages link to are copied into it.
    """

    def __init__(self, repository: Path, pages: Mapping[str, str], out: Path):
        self._repository, self._pages, self._out = repository, dict(pages), out

    def rewritten(self, text: str, source: str, page: str) -> str:
        """The text of a page.

        Args:
            text: Markdown whose links are relative to `source`, a path in the repository.
            source: where the text is from.
            page: its path on the site.

        Raises:
            BrokenLink: a link leads nowhere.
        """
        parts = re.split(r"(^ *```.*?^ *```)", text, flags=re.MULTILINE | re.DOTALL)
        return "".join(
            part if part.lstrip().startswith("```") else _LINK.sub(lambda m: self._link(m, source, page), part)
            for part in parts
        )

    def _link(self, found: re.Match, source: str, page: str) -> str:
        opening, path, fragment = found[1], found[2], found[3] or ""
        if "://" in path or path.startswith("mailto:"):
            return found[0]
        wanted = os.path.normpath(PurePosixPath(source).parent / path)
        target = self._pages.get(wanted) or self._file(wanted, source)
        return f"{opening}{os.path.relpath(target, PurePosixPath(page).parent)}{fragment})"

    def _file(self, wanted: str, source: str) -> str:
        """Where a file of the repository is on the site, where it is no page: a copy."""
        origin = self._repository / wanted
        if not origin.is_file():
            raise BrokenLink(f"{source} links to {wanted}, which is no page and no file")
        target = f"{FILES}/{wanted}"
        copy = self._out / target
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(origin.read_bytes())
        return target

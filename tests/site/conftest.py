"""The site in headless Chromium: what `make site` wrote, by a server on this machine and as files.

A browser and its driver are no Python packages; `browser` says how to get them where there are none.
"""

from __future__ import annotations

import os
import shutil
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from pages import screen
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

SITE = Path(__file__).resolve().parents[2] / "build" / "site"
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_HOW = (
    "no {} on the PATH. Debian and Ubuntu: apt-get install chromium chromium-driver. Fedora: dnf install chromium "
    "chromedriver. Elsewhere: Chrome and the ChromeDriver of its version"
)


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture(scope="session")
def site() -> Path:
    """The folder of the site."""
    assert (SITE / "index.html").exists(), f"{SITE} has no site: make site"
    return SITE


@pytest.fixture(scope="session")
def address(site):
    """Where a server of this machine has the site."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=site)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="session")
def _driver():
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    driver = shutil.which("chromedriver")
    for name, found in (("Chromium or Chrome", browser), ("chromedriver", driver)):
        if found is None:
            pytest.exit(_HOW.format(name), returncode=1)
    options = Options()
    options.binary_location = browser
    options.add_argument("--headless=new")
    options.add_argument("--disable-dev-shm-usage")
    if os.getuid() == 0:
        options.add_argument("--no-sandbox")  # Chromium has no other way to run as root
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    started = webdriver.Chrome(options=options, service=Service(driver))
    yield started
    started.quit()


@pytest.fixture
def browser(_driver):
    """A browser with a wide window and light colours, whose console is empty."""
    _driver.get("about:blank")
    screen(_driver, 1280, 900)
    _driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    _driver.get_log("browser")
    return _driver

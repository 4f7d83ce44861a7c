"""The site as a reader sees it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import pages, screen
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

REPOSITORY = Path(__file__).resolve().parents[2]

# Of each kind of page one or two: prose, tables, formulas that are wide, pictures, code, the table of measurements.
SHOWN = (
    "index.html", "start.html", "concepts.html", "language.html", "ops.html", "numerics.html", "alternatives.html",
    "support.html", "operations/index.html", "operations/softmax.html", "operations/layer_norm_dynamic_quantize.html",
    "operations/quantize_per_group.html", "evidence/index.html", "evidence/kernels.html", "changes.html",
)  # fmt: skip
_MATH = """return [...document.querySelectorAll("math")].map((math) => {
  const box = math.getBoundingClientRect(), style = getComputedStyle(math);
  return [box.width, box.height, style.visibility, math.textContent.trim()];
})"""
_WIDER = """const wide = document.documentElement.clientWidth;
const clipped = (node) => { for (; node; node = node.parentElement) {
  if (getComputedStyle(node).overflowX !== "visible") return true } };
return [document.scrollingElement.scrollWidth - wide, ...[...document.querySelectorAll("article *")]
  .filter((node) => node.getBoundingClientRect().right > wide + 1 && !clipped(node.parentElement))
  .map((node) => node.outerHTML.slice(0, 120))]"""
_CONTRAST = """const luminance = (colour) => {
  const [r, g, b] = colour.match(/[\\d.]+/g).slice(0, 3).map((each) => each / 255)
    .map((each) => each <= 0.03928 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b };
const ground = luminance(getComputedStyle(document.body).backgroundColor);
return [ground, ...[...document.querySelectorAll(arguments[0])].filter((node) => node.checkVisibility()).map((node) => {
  const style = getComputedStyle(node), front = luminance(node instanceof SVGElement ? style.fill : style.color);
  return (Math.max(front, ground) + 0.05) / (Math.min(front, ground) + 0.05) })]"""


def errors(browser) -> list[str]:
    return [entry["message"] for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]


def wait(browser, condition, seconds: float = 10):
    return WebDriverWait(browser, seconds, poll_frequency=0.05).until(condition)


def test_no_page_has_an_error_or_an_invisible_formula(browser, site, address):
    """All pages, each once; what they load is on the server."""
    formulas = 0
    for path in pages(site):
        name = path.relative_to(site).as_posix()
        browser.get(f"{address}/{name}")
        assert errors(browser) == [], name
        loaded = browser.execute_script("return performance.getEntriesByType('resource').map((each) => each.name)")
        assert [each for each in loaded if not each.startswith((address, "blob:", "data:"))] == [], name
        for width, height, visibility, text in browser.execute_script(_MATH):
            assert width > 4 and height > 4 and visibility == "visible" and text and "\\" not in text, (name, text)
            formulas += 1
    pages_of_rows = (REPOSITORY / "generated" / "docs").glob("*.md")
    assert formulas > sum(path.read_text(encoding="utf-8").count("```math") for path in pages_of_rows) > 0


def test_formulas_have_the_font_of_mathematics(browser, address):
    browser.get(f"{address}/operations/softmax.html")
    wait(browser, lambda each: each.execute_script("return document.fonts.check('16px \"STIX Two Math\"')"))
    bar, letter = browser.execute_script(
        "return ['mfrac', 'mi'].map((name) => document.querySelector(`math ${name}`).getBoundingClientRect().height)"
    )
    assert bar > 1.5 * letter  # a fraction stands above and below its line


def first_result(browser) -> str:
    """Where the first result of a search leads, in a list that changes as letters are typed."""
    return browser.execute_script("return document.querySelector('a.md-search-result__link')?.href ?? ''")


@pytest.mark.parametrize("place", ["server", "file"])
def test_search_finds_an_operation(browser, site, address, place):
    """By a server, and where the site was opened as files."""
    browser.get(f"{address}/index.html" if place == "server" else (site / "index.html").as_uri())
    box = browser.find_element(By.CSS_SELECTOR, "input.md-search__input")
    box.click()
    box.send_keys("l")  # words that begin so are many; each of them must be there
    wait(browser, lambda each: each.find_elements(By.CSS_SELECTOR, "a.md-search-result__link"))
    box.send_keys("ayer_norm_dynamic")
    wait(browser, lambda each: "layer_norm_dynamic" in first_result(each))
    assert "layer_norm_dynamic_quantize.html" in first_result(browser)
    box.send_keys(Keys.ENTER)
    wait(browser, lambda each: "layer_norm_dynamic_quantize" in each.current_url)
    assert wait(browser, lambda each: each.find_element(By.TAG_NAME, "h1")).text.startswith("layer_norm_dynamic")
    assert errors(browser) == []


@pytest.mark.parametrize("name", SHOWN)
def test_a_small_screen_scrolls_in_one_direction(browser, address, name):
    screen(browser, 360, 740)
    browser.get(f"{address}/{name}")
    if name == "evidence/index.html":
        wait(browser, lambda each: each.find_elements(By.CSS_SELECTOR, "#measurements td"))
    assert browser.execute_script(_WIDER) == [0]
    size = browser.execute_script("return parseFloat(getComputedStyle(document.querySelector('article p')).fontSize)")
    assert size >= 14


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_can_be_read(browser, address, scheme):
    """Text, links, formulas and pictures by the contrast that WCAG asks of text."""
    preferred = {"name": "prefers-color-scheme", "value": scheme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [preferred]})
    for name in ("operations/softmax.html", "evidence/index.html", "language.html"):
        browser.get(f"{address}/{name}")
        browser.execute_script("localStorage.clear()")
        browser.get(f"{address}/{name}")
        ground, *texts = browser.execute_script(
            _CONTRAST, "article p, article td, article mi, article h2, svg text.name, article p a, td.slower"
        )
        assert (ground > 0.9) if scheme == "light" else (ground < 0.1)
        assert len(texts) > 20 and min(texts) >= 4.5, (name, min(texts))
        marks = browser.execute_script(_CONTRAST, "figure.speed path, figure.speed circle")[1:]
        assert all(each >= 3 for each in marks), (name, marks)


def test_the_switch_of_colours_works(browser, address):
    browser.get(f"{address}/index.html")
    browser.execute_script("localStorage.clear()")
    browser.get(f"{address}/index.html")
    for scheme in ("default", "slate"):  # from the system's colours to light ones, then to dark ones
        switches = browser.find_elements(By.CSS_SELECTOR, "form[data-md-component=palette] label")
        next(each for each in switches if each.is_displayed()).click()
        chosen = f"body[data-md-color-scheme={scheme}]"
        wait(browser, lambda each, chosen=chosen: each.find_elements(By.CSS_SELECTOR, chosen))
    grounds = browser.execute_script(_CONTRAST, "article h1")
    assert grounds[0] < 0.1 and grounds[1] > 4.5


def rows(browser) -> list[list[str]]:
    """The texts of the table's rows without the GPU, which is shown where there are several."""
    return browser.execute_script(
        "return [...document.querySelectorAll('#measurements tbody tr')].map((row) => "
        "[...row.cells].slice(1).filter((cell) => !cell.hidden).map((cell) => cell.textContent))"
    )


@pytest.mark.parametrize("place", ["server", "file"])
def test_the_table_of_measurements_filters_and_sorts(browser, site, address, place):
    path = "evidence/index.html"
    browser.get(f"{address}/{path}" if place == "server" else (site / path).as_uri())
    root = wait(browser, lambda each: each.find_element(By.CSS_SELECTOR, "#measurements form"))
    status = browser.find_element(By.CSS_SELECTOR, "#measurements [role=status]")
    every = int(status.text.split()[0])
    assert every > 1000 and len(rows(browser)) == 100
    browser.find_element(By.XPATH, "//div[@id='measurements']/button").click()
    assert len(rows(browser)) == 200

    root.find_element(By.NAME, "operation").send_keys("rms norm backward")
    Select(root.find_element(By.NAME, "type")).select_by_value("f16")
    root.find_element(By.NAME, "shape").send_keys("16384x4096")
    found = rows(browser)
    assert 0 < len(found) == int(status.text.split()[0]) < every
    assert all("rms_norm" in row[0] and row[0].endswith("backward") for row in found)
    assert all("f16" in row[1].split() and "16384x4096" in row[2] for row in found)

    root.find_element(By.NAME, "operation").clear()
    root.find_element(By.NAME, "operation").send_keys("softmax")
    Select(root.find_element(By.NAME, "peer")).select_by_value("Triton")
    _, *heads = browser.find_elements(By.CSS_SELECTOR, "#measurements th")
    heads = [each.text for each in heads if each.is_displayed()]
    triton = next(index for index, head in enumerate(heads) if head.startswith("Triton"))
    browser.find_element(By.XPATH, "//div[@id='measurements']//button[starts-with(text(), 'Triton')]").click()
    ratios = [float(row[triton]) for row in rows(browser)]
    assert len(ratios) > 1 and ratios == sorted(ratios)
    browser.find_element(By.XPATH, "//div[@id='measurements']//button[starts-with(text(), 'Triton')]").click()
    assert [float(row[triton]) for row in rows(browser)] == sorted(ratios, reverse=True)
    assert errors(browser) == []

"""The page in a real browser: Chromium through its driver."""

import json
import shutil
import threading
from urllib.parse import urlencode

import pytest
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

from helpers import CPU
from highrank.explore.explorer import Explorer
from highrank.explore.model import open_models
from highrank.explore.server import create_app, listen, new_server

pytestmark = pytest.mark.browser
PATIENCE = 60  # seconds; only a page that never gets there takes that long
TEXT = "the cat sees a dog"

# Defines functions on the page, and returns the contrast of every piece of text with the colours behind it.
CONTRASTS = """
const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
window.colour = (node, property, behind = [0, 0, 0]) => {
  canvas.fillStyle = `rgb(${behind.join(" ")})`;
  canvas.fillRect(0, 0, 1, 1);
  canvas.fillStyle = getComputedStyle(node)[property];
  canvas.fillRect(0, 0, 1, 1);
  return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
};
window.luminance = rgb => {
  const [r, g, b] = rgb.map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const background = node => node ? colour(node, "backgroundColor", background(node.parentElement)) : [255, 255, 255];
const hasText = node => [...node.childNodes].some(child => child.nodeType === 3 && child.data.trim());
return [...document.querySelectorAll("body *")].filter(hasText).filter(node => node.checkVisibility()).map(node => {
  const behind = background(node);
  const written = node.closest("#copy") ? document.getElementById("text") : node;  // the text area lies over its copy
  const levels = [colour(written, "color", behind), behind].map(luminance).sort((a, b) => b - a);
  return {text: node.textContent, contrast: (levels[0] + 0.05) / (levels[1] + 0.05)};
});
"""


@pytest.fixture(scope="session")
def url(runs):
    models = open_models([runs["unk"], runs["mos"], runs["softmax"]], CPU)
    server = new_server(create_app([Explorer(model) for model in models]))
    with listen("127.0.0.1", 0) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="session")
def chromium(tmp_path_factory):
    binary = shutil.which("chromium") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if not binary or not driver:
        pytest.skip("no browser: install chromium and chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    profile = tmp_path_factory.mktemp("chromium")
    for argument in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", f"user-data-dir={profile}"):
        options.add_argument(f"--{argument}")
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield browser
    browser.quit()


class Page:
    def __init__(self, browser, url):
        self.browser = browser
        self.url = url

    def open(self, width=1200, **fields):
        self.browser.set_window_size(width, 900)
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.browser.get("about:blank")  # a change of the fragment alone would not load the page again
        self.browser.get(f"{self.url}#{urlencode(fields)}")
        self.until(lambda: self.script("return document.body.dataset.ready"))
        return self

    def script(self, code, *arguments):
        return self.browser.execute_script(code, *arguments)

    def until(self, condition):
        return WebDriverWait(self.browser, PATIENCE).until(lambda _: condition())

    def find(self, selector):
        return self.browser.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector):
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def words(self):
        return self.script("return [...document.querySelectorAll('#copy span')].map(node => node.textContent)")

    def text(self, selector):
        return self.script("return document.querySelector(arguments[0]).textContent", selector)

    def value(self):
        return self.script("return document.getElementById('text').value")

    def type(self, keys):
        self.find("#text").send_keys(keys)

    def hover(self, element):
        ActionChains(self.browser).move_to_element(element).perform()
        return self.text("#tip")


@pytest.fixture
def page(chromium, url):
    return Page(chromium, url)


def test_typed_words_are_coloured_by_surprisal(page):
    page.open(model="mos").type(TEXT)
    page.until(lambda: page.words() == TEXT.split())
    assert all("color-mix" in word.get_attribute("style") for word in page.all("#copy span"))
    page.until(lambda: "“dog” had probability" in page.text("#predictions"))


def test_the_cursor_moves_by_keyboard_through_the_predictions(page):
    page.open(model="mos", text=TEXT, at=len(TEXT)).type(Keys.HOME)
    page.until(lambda: "“the” had probability" in page.text("#predictions"))
    page.type(Keys.END + " ")
    page.until(lambda: "What comes next?" in page.text("#predictions"))
    page.until(lambda: page.text("#status").startswith("Next: "))  # for screen readers


def test_hovering_a_word_shows_its_probability_rank_and_components(page):
    page.open(model="mos", text=TEXT)
    tip = page.hover(page.all("#copy span")[1])
    assert tip.startswith("cat")
    assert "rank" in tip
    assert "component" in tip


def test_a_component_is_followed_over_the_text(page):
    page.open(model="mos", text=TEXT)
    page.find("#predictions .components button").click()
    assert page.find("#labels button[aria-pressed=true]")
    assert page.find("#colouring button[aria-pressed=true]").text.startswith("Component")
    assert "of this text" in page.text("#followed")


def test_the_keyboard_alone_reaches_the_components(page):
    page.open(model="mos", text=TEXT).type(Keys.TAB)
    for _ in range(30):
        focus = page.browser.switch_to.active_element
        if focus.find_elements(By.CSS_SELECTOR, ".chip"):
            break
        focus.send_keys(Keys.TAB)
    focus.send_keys(Keys.ENTER)
    assert page.find("#labels button[aria-pressed=true]")


def test_two_models_are_compared_word_by_word(page):
    page.open(model="mos", text=TEXT)
    Select(page.find("#b")).select_by_visible_text("softmax")
    page.until(lambda: "nats per word" in page.text("#difference"))
    assert len(page.all("#predictions > div")) == 2
    before = page.script("return document.getElementById('text').selectionStart")
    page.find("#next").click()
    page.until(lambda: page.script("return document.getElementById('text').selectionStart") != before)


def test_two_models_without_a_text_have_no_differences(page):
    page.open(model="mos", compare="softmax")
    assert not page.all("#difference button")
    assert "null" not in page.text("#difference")


def test_sampled_words_show_their_component(page):
    page.open(model="mos", text=TEXT, at=len(TEXT))
    page.find("#generate button").click()
    page.until(lambda: len(page.value()) > len(TEXT) and page.all("#copy .sampled"))
    assert page.value().startswith(TEXT)
    assert "drawn from component" in page.hover(page.all("#copy .sampled")[0])


def test_a_beam_offers_continuations(page):
    page.open(model="mos", text=TEXT, at=len(TEXT))
    Select(page.find("#generate select")).select_by_value("beam")
    page.find("#generate button").click()
    page.until(lambda: len(page.all("#continuations button")) == 5)
    choice = next(button for button in page.all("#continuations button") if "↵" not in button.text)
    words = choice.text.split("nats")[1].split()
    choice.click()
    page.until(lambda: page.value().split() == TEXT.split() + words)


def test_a_link_reproduces_the_state(page):
    page.open(model="mos", text=TEXT, at=5)
    page.find("#predictions .components button").click()
    page.until(lambda: "follow=" in page.browser.current_url)
    link = page.browser.current_url
    followed = page.text("#labels button[aria-pressed=true]")
    page.open()
    page.browser.get("about:blank")
    page.browser.get(link)
    page.until(lambda: page.words() == TEXT.split())
    assert page.text("#labels button[aria-pressed=true]") == followed
    assert page.text("#copy .here") == "cat"


def test_markup_in_a_text_stays_text(page):
    text = "the <script>alert(1)</script> <b>bold</b> <img/src=x/onerror=alert(1)>"
    page.open(model="unk-mos", text=text)
    assert page.words() == text.split()
    assert "<script>" in page.text("#columns")
    assert not page.script("return document.querySelector('main script, main b, main img')")


def test_characters_outside_the_basic_plane_keep_words_in_place(page):
    page.open(model="mos", text="the 😀 cat 😀😀 sees")
    assert page.words() == ["the", "😀", "cat", "😀😀", "sees"]


@pytest.mark.parametrize("width", [400, 1600])
def test_the_page_fits_on_screens(page, width):
    page.open(width=width, model="mos", compare="softmax", text=TEXT)
    page.find("#whole summary").click()
    page.until(lambda: page.all("#models .components"))
    assert page.script("return document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_stands_out_from_its_background(page, scheme):
    """WCAG 2 asks for a contrast of at least 4.5."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    page.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    page.open(text=TEXT, model="mos", compare="softmax")
    contrasts = page.script(CONTRASTS)
    assert len(contrasts) > 50
    assert [found for found in contrasts if found["contrast"] < 4.5] == []
    luminance = page.script("return luminance(colour(document.body, 'backgroundColor'))")
    assert (luminance < 0.1) == (scheme == "dark")


def test_every_control_has_a_name_for_screen_readers(page):
    page.open(text=TEXT, model="mos", compare="softmax")
    nodes = page.browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    roles = {"button", "checkbox", "combobox", "link", "option", "radio", "slider", "spinbutton", "textbox"}
    names = [
        (node["role"]["value"], node["name"]["value"])
        for node in nodes
        if not node["ignored"] and node["role"]["value"] in roles
    ]
    assert {"button", "combobox", "textbox"} <= {role for role, _ in names}
    assert [role for role, name in names if not name.strip()] == []


def test_results_are_downloaded_as_json(page):
    page.open(model="mos", text=TEXT)
    page.script("URL.createObjectURL = blob => { blob.text().then(text => { window.saved = text; }); return '#'; }")
    page.find("#download").click()
    result = json.loads(page.until(lambda: page.script("return window.saved")))
    assert result["text"] == TEXT
    assert len(result["models"][0]["scores"]) == 5


def test_two_tabs_work_at_once(page):
    page.open(model="mos", text=TEXT)
    first = page.browser.current_window_handle
    page.browser.switch_to.new_window("tab")
    page.open(model="softmax", text="a bird")
    assert page.words() == ["a", "bird"]
    page.browser.close()
    page.browser.switch_to.window(first)
    page.type(" eats")
    page.until(lambda: page.words()[-1] == "eats")


def test_an_error_is_shown(page):
    page.open(model="mos", text="a" * 10_001)
    assert "longer" in page.text("#error")

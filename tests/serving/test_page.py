"""The page in a real Chromium: by keyboard, on a phone, light and dark, nothing from outside."""

import pytest

from serving import browser as chromium
from umpteen.live.book import LabelBook

pytestmark = pytest.mark.skipif(chromium.find() is None, reason="Chromium is not installed")

TEXT = "about red apple quite"
FIRST = "document.querySelector('#found .name')?.textContent"


@pytest.fixture(scope="module")
def own_run(served_run, tmp_path_factory):
    import shutil

    return shutil.copytree(served_run, tmp_path_factory.mktemp("paged") / "run")


@pytest.fixture(scope="module")
def url(own_run):
    from serving.conftest import Service

    running = Service(own_run)
    yield running.url
    running.process.kill()
    running.process.wait()


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    opened = chromium.Browser(tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()


@pytest.fixture
def page(shared, url):
    shared.look(width=1100, height=900)
    shared.problems.clear()
    shared.requests.clear()
    shared.open(f"{url}/?{id(object())}")
    shared.wait_for("document.documentElement.dataset.ready === 'yes'")
    yield shared
    assert not shared.problems
    outside = [address for address in shared.requests if not address.startswith(url)]
    assert not outside


def go(page, section):
    page.run(f"location.hash = '{section}'")
    page.wait_for(f"!document.getElementById('{section}').hidden")


def test_a_text_gets_its_labels_with_the_keyboard_alone(page):
    assert page.run("document.activeElement.id") == "words"
    page.type(TEXT)
    page.key("Enter", modifiers=2)  # Ctrl + Enter
    page.wait_for(FIRST)
    assert page.run("document.querySelectorAll('#found > li').length") == 10
    assert page.run("document.querySelectorAll('#found .bar span').length") >= 20
    assert "training text" in page.run("document.querySelector('#found .about').textContent")
    assert page.run("document.querySelectorAll('#legend li').length") >= 2
    assert page.run("document.querySelectorAll('#neighbours li').length") >= 1
    page.key("Tab")  # from the answer's heading to its first button
    assert page.run("document.activeElement.getAttribute('aria-label')").startswith("Accept ")
    page.key("Enter", text="\r")
    assert page.run("document.activeElement.getAttribute('aria-pressed')") == "true"
    assert page.run("document.querySelectorAll('#accepted li').length") == 1


def test_a_correction_is_remembered(page):
    words = "quite some candle under mountain"
    page.run(f"document.getElementById('words').value = '{words}'")
    page.run("document.getElementById('ask').requestSubmit()")
    page.wait_for(FIRST)
    page.run("document.getElementById('missing').value = 'L31'")
    page.run("document.getElementById('add-missing').click()")
    page.wait_for("!document.getElementById('save').disabled")
    page.run("document.getElementById('save').click()")
    page.wait_for("document.getElementById('notice').textContent.includes('remembered')")
    assert "L31" in page.run("document.querySelector('#found .about').textContent")


def test_labels_are_browsed_added_and_retired(page, own_run):
    go(page, "labels")
    page.wait_for("document.querySelectorAll('#list tr').length === 20")
    assert page.run("document.getElementById('total').textContent").endswith("labels")
    page.run("document.getElementById('on').click()")
    page.wait_for("document.getElementById('total').textContent.startsWith('21 to')")
    nasty = "<img src=x onerror=alert(1)> lantern"
    page.run("document.getElementById('new-id').value = 'P1'")
    page.run(f"document.getElementById('new-text').value = '{nasty}'")
    page.run("document.getElementById('add').requestSubmit()")
    page.wait_for("document.getElementById('notice').textContent.includes('was added')")
    assert nasty in page.run("document.querySelector('#list th').textContent")
    assert page.run("document.querySelectorAll('#list img').length") == 0
    page.run("document.querySelector('#list button').click()")
    page.wait_for("document.querySelector('#list td:nth-child(3)').textContent === 'retired'")
    assert LabelBook.open(own_run).changes.retired == {"P1"}
    page.run("document.querySelector('#list button').click()")
    page.wait_for("document.querySelector('#list td:nth-child(3)').textContent === 'added'")
    assert page.run("document.querySelectorAll('#frequencies rect').length") >= 2


def test_a_mistake_is_a_sentence_on_the_page(page):
    go(page, "labels")
    page.run("document.getElementById('new-id').value = 'L01'")
    page.run("document.getElementById('new-text').value = 'taken'")
    page.run("document.getElementById('add').requestSubmit()")
    page.wait_for("document.getElementById('notice').textContent.includes('never given twice')")
    page.problems.clear()  # Chromium logs the 409


def test_the_run_shows_its_metrics_and_curves(page):
    go(page, "run")
    assert page.run("document.querySelectorAll('#metrics tbody tr').length") >= 5
    assert page.run("document.querySelectorAll('#curve polyline').length") >= 3
    assert page.run("document.querySelectorAll('#facts div').length") >= 5
    assert page.run("getComputedStyle(document.querySelector('#curve polyline')).fill") == "none"


@pytest.mark.parametrize("section", ["text", "labels", "run"])
def test_on_a_phone_nothing_hangs_over_the_edge(page, section):
    page.look(width=360, height=740)
    page.run(f"document.getElementById('words').value = '{TEXT} {'long' * 40}'")
    page.run("document.getElementById('ask').requestSubmit()")
    page.wait_for(FIRST)
    go(page, section)
    page.wait_for("document.querySelectorAll('#list tr').length > 0")
    assert page.run("document.documentElement.scrollWidth") <= 360


def contrast(page, front, back):
    """The WCAG contrast of two colours of the style sheet."""
    script = """
      (() => { const style = getComputedStyle(document.documentElement);
        const light = (name) => { const hex = style.getPropertyValue(name).trim().slice(1);
          const parts = [0, 2, 4].map((n) => parseInt(hex.slice(n, n + 2), 16) / 255)
            .map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
          return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]; };
        const [a, b] = [light('%s'), light('%s')].sort((x, y) => y - x);
        return (a + 0.05) / (b + 0.05); })()
    """
    return page.run(script % (front, back))


@pytest.mark.parametrize("dark", [False, True])
def test_words_can_be_read_in_light_and_dark(page, dark):
    page.look(width=1100, height=900, dark=dark)
    background = page.run("getComputedStyle(document.body).backgroundColor")
    assert background == ("rgb(20, 23, 26)" if dark else "rgb(247, 247, 245)")
    on_sheet = [(f"--{name}", "--sheet") for name in ("ink", "soft", "blue", "bad", "good")]
    others = [("--soft", "--ground"), ("--on-blue", "--blue"), ("--warn", "--warn-ground")]
    for front, back in on_sheet + others:
        assert contrast(page, front, back) >= 4.5, (front, back)


def test_every_field_has_a_name_and_every_heading_its_place(page):
    nameless = """
      [...document.querySelectorAll('input, select, textarea, button')].filter((field) =>
        !(field.labels?.length || field.textContent.trim() || field.getAttribute('aria-label'))
      ).map((field) => field.id)
    """
    assert page.run(nameless) == []
    assert page.run("document.querySelectorAll('h1').length") == 1
    assert page.run("document.documentElement.lang") == "en"

"""The page in a real browser: what people do with it, on any screen, by keyboard, in any light."""

import contextlib
import json
import shutil
import socket
import threading
import urllib.error
import urllib.request

import pytest

from .browser import CHROMIUM, Browser

pytestmark = [
    pytest.mark.slow,
    pytest.mark.processes,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on this machine"),
]
TEXT = "some red apple near"


class Server:
    """An application in this process, behind a real socket."""

    def __init__(self, run, **options):
        import uvicorn

        from umpteen.serving.app import create_app
        from umpteen.serving.options import Options

        app = create_app(Options((str(run),), device="cpu", poll_seconds=0, **options))
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False))
        self._thread = threading.Thread(target=self._server.run, args=([self._listening],))
        self._thread.start()

    def call(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data)
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=180) as answer:
            return json.loads(answer.read())

    def stop(self):
        self._server.should_exit = True
        self._thread.join()
        self._listening.close()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    started = Browser(tmp_path_factory.mktemp("browser"))
    yield started
    started.close()


@pytest.fixture(scope="module")
def server(served_run, tmp_path_factory):
    started = Server(shutil.copytree(served_run, tmp_path_factory.mktemp("page") / "run"))
    yield started
    started.stop()


@pytest.fixture
def page(browser, server):
    """A page that must not complain, nor ask anybody but the service."""
    opened = browser.open()
    opened.go(server.url)
    opened.wait("document.querySelector('#head').options.length > 0")
    yield opened
    elsewhere = [url for url in opened.requests if not url.startswith(server.url)]
    assert not elsewhere
    assert not opened.complaints
    opened.close()


def ask(page, text):
    page.js("document.querySelector('#text').select()")
    page.js("document.querySelector('#text').focus()")
    page.js("document.querySelector('#status').textContent = ''")
    page.type(text)
    page.press("Enter")
    page.wait("document.querySelector('#status').textContent.includes('found')")


def view(page, name):
    page.click(f"header nav a[data-view={name}]")
    page.wait(f"!document.querySelector('#view-{name}').hidden")


def found_ids(page):
    return page.js("[...document.querySelectorAll('#found .result')].map(e => e.dataset.id)")


def add(page, label_id, text):
    view(page, "labels")
    page.click("#add-id")
    page.type(label_id)
    page.click("#add-text")
    page.type(text)
    page.press("Enter")
    page.wait("!document.querySelector('#add-done').hidden")


def test_typing_a_text_and_enter_shows_what_the_service_answers(page, server):
    assert page.js("document.activeElement.id") == "text"
    page.type(TEXT)
    page.press("Enter")
    page.wait("document.querySelectorAll('#found .result').length === 10")
    body = {"texts": [TEXT], "k": 10, "explain": True}
    [expected] = server.call("/v1/predict", body)["predictions"]
    assert found_ids(page) == [label["id"] for label in expected["labels"]]
    best = expected["labels"][0]
    said = page.wait("document.querySelector('#status').textContent")
    assert "10 labels found" in said
    assert best["text"] in said
    assert f"{round(100 * best['score'])} %" in page.text("#found .result .score")
    shares = page.text("#found .result .shares")
    contributions = {name: max(0.0, value) for name, value in best["contributions"].items()}
    for scorer, value in contributions.items():
        share = 100 * value / sum(contributions.values())
        assert (f"{scorer} {share:.0f} %" in shares) == (share >= 0.5)
    near = expected["neighbours"][0]
    assert near["text"] in page.text("#near-list li")
    assert near["labels"][0] in page.text("#near-list li")


def test_bars_are_as_long_as_probabilities(page, server):
    ask(page, TEXT)
    [expected] = server.call("/v1/predict", {"texts": [TEXT], "k": 10})["predictions"]
    lengths = page.js(
        "[...document.querySelectorAll('#found .bar')].map(bar => [...bar.children].slice(1)"
        ".reduce((sum, piece) => sum + Number(piece.getAttribute('width')), 0))"
    )
    wanted = [max(4.0, 1000 * label["score"]) for label in expected["labels"]]
    assert lengths == pytest.approx(wanted, abs=0.01)


def test_shift_enter_is_a_new_line_and_a_blank_text_asks_nothing(page):
    page.press("Enter")
    page.wait("document.querySelector('#status').textContent.includes('first')")
    page.type("one")
    page.press("Enter", shift=True)
    page.type("two")
    assert page.js("document.querySelector('#text').value") == "one\ntwo"
    assert not [url for url in page.requests if url.endswith("/v1/predict")]


def test_another_head_gives_its_own_answer(page, server):
    ask(page, TEXT)
    page.js(
        "(() => { const head = document.querySelector('#head'); head.value = 'dual';"
        " head.dispatchEvent(new Event('change')); })()"
    )
    page.wait("document.querySelector('#found-note').textContent.includes('cosines')")
    [expected] = server.call("/v1/predict", {"texts": [TEXT], "k": 10, "head": "dual"})[
        "predictions"
    ]
    assert found_ids(page) == [label["id"] for label in expected["labels"]]


def test_an_added_label_is_found_and_a_retired_one_is_not(page):
    add(page, "PAGE-1", "purple umbrella of the page")
    page.click("#try-added")
    page.wait("document.querySelector('#found .result')?.dataset.id === 'PAGE-1'")
    view(page, "labels")
    page.js("document.querySelector('#words').focus()")
    page.type("purple umbrella")
    page.wait("document.querySelectorAll('#label-list li').length === 1")
    assert "added" in page.text("#label-list li")
    page.click("#label-list li button.quiet")
    page.wait("document.querySelector('#label-list li .state.retired')")
    view(page, "predict")
    ask(page, "purple umbrella of the page")
    assert "PAGE-1" not in found_ids(page)
    page.js("document.querySelector('#label-list li').dataset.old = 'yes'")
    view(page, "labels")
    page.wait("document.querySelector('#label-list li:not([data-old])')")  # listed anew
    page.click("#label-list li button.quiet")
    page.wait("document.querySelector('#label-list li .state.added')")
    view(page, "predict")
    ask(page, "purple umbrella of the page")
    page.wait("document.querySelector('#found .result')?.dataset.id === 'PAGE-1'")


def test_an_id_that_is_taken_is_refused_with_a_sentence(page):
    view(page, "labels")
    page.click("#add-id")
    page.type("L01")
    page.click("#add-text")
    page.type("again")
    page.press("Enter")
    page.wait("document.querySelector('#add-fault .fault')")
    assert "L01" in page.text("#add-fault .fault")
    page.complaints.clear()  # the browser notes every 409


def test_labels_are_searched_and_paged(page, server):
    view(page, "labels")
    page.wait("document.querySelectorAll('#label-list li').length === 25")
    first = page.texts("#label-list .label-text")
    page.click("#page-on")
    page.wait("document.querySelector('#page-place').textContent.startsWith('26 ')")
    assert not set(first) & set(page.texts("#label-list .label-text"))
    page.click("#words")
    page.type("red")
    total = server.call("/v1/labels?search=red")["total"]
    page.wait(f"document.querySelector('#labels-count').textContent.startsWith('{total} ')")
    assert all("red" in text for text in page.texts("#label-list .label-text"))


def test_a_correction_by_keyboard_counts_in_the_next_answer(page):
    text = "quite old window from nowhere"
    ask(page, text)
    last = found_ids(page)[-1]
    page.js("document.querySelector('#found .result').focus()")
    page.press("x")
    page.press("End")
    assert page.js("document.activeElement.dataset.id") == last
    page.press("a")
    page.wait("!document.querySelector('#correction').hidden")
    assert page.js("document.querySelectorAll('#found .result.wrong').length") == 1
    page.press("s")
    page.wait("document.querySelector('#found-note').textContent.startsWith('Correction stored')")
    assert found_ids(page)[0] == last
    assert text in page.text("#near-list li")
    assert page.js("document.querySelector('#correction').hidden")


def test_a_missing_label_can_be_added_to_a_correction(page):
    text = "tiny thing without a name"
    ask(page, text)
    page.click("#found .result .verdict.wrong")
    page.wait("document.querySelector('#correction-send').disabled")
    page.click("#missing")
    page.type("lantern")
    page.wait("document.querySelectorAll('#missing-list li').length > 0")
    page.press("ArrowDown")
    page.press("Enter")
    chosen = page.wait("document.querySelector('#correction-labels bdi')?.textContent")
    assert "lantern" in chosen
    page.click("#correction-send")
    page.wait("document.querySelector('#found-note').textContent.startsWith('Correction stored')")
    assert page.text("#found .result .label-text") == chosen


def test_a_label_that_does_not_exist_can_be_created_in_a_correction(page, server):
    text = "a gadget of a kind never seen"
    ask(page, text)
    page.click("#found .result .verdict.wrong")
    page.click("#missing")
    page.type("flux gadget")
    page.wait("[...document.querySelectorAll('#missing-list li')].some("
              "item => item.textContent === 'Create the label flux gadget')")  # fmt: skip
    page.press("ArrowUp")
    page.press("Enter")
    page.wait("document.querySelector('#correction-labels bdi')?.textContent === 'flux gadget'")
    page.click("#correction-send")
    page.wait("document.querySelector('#found-note').textContent.startsWith('Correction stored')")
    assert found_ids(page)[0] == "flux gadget"
    [label] = server.call("/v1/labels?search=flux")["labels"]
    assert (label["id"], label["state"]) == ("flux gadget", "added")
    # It is there now, so that it is not offered to be created again.
    page.click("#found .result .verdict.right")
    page.click("#missing")
    page.type("Flux gadget")
    page.wait("document.querySelectorAll('#missing-list li').length > 0")
    assert "Create" not in page.text("#missing-list")


@pytest.mark.parametrize(("width", "height"), [(1200, 500), (700, 600)])
def test_the_correction_covers_no_label(width, height, page):
    page.size(width, height)
    ask(page, TEXT)
    page.click("#found .result .verdict.right")
    page.wait("!document.querySelector('#correction').hidden")
    covered = """
      (() => {
        const panel = document.querySelector('#correction').getBoundingClientRect();
        const over = (box) => box.left < panel.right && panel.left < box.right
          && box.top < panel.bottom && panel.top < box.bottom;
        return [...document.querySelectorAll('#found .result')]
          .filter((item) => over(item.getBoundingClientRect())).length;
      })()"""
    for place in (0, 300, 10_000):
        page.js(f"window.scrollTo(0, {place})")
        assert page.js(covered) == 0


def test_texts_are_ordered_for_review_corrected_and_exported(page, server):
    texts = ["red apple near", "an unclear thing somewhere", "old river"]
    view(page, "review")
    page.click("#review-texts")
    page.js(f"document.querySelector('#review-texts').value = {json.dumps(chr(10).join(texts))}")
    page.click("#review-order")
    page.wait("document.querySelectorAll('#review-list > li').length === 3")
    expected = server.call("/v1/suggest", {"texts": texts, "n": 20})["suggestions"]
    shown = page.texts("#review-list .label-text")
    assert shown == [each["text"] for each in expected]
    assert page.text("#review-badge") == "3"
    page.js(
        "URL.createObjectURL = (blob) => { blob.text().then((text) => { window.saved = text; });"
        " return '#review'; }"
    )
    page.click("#review-list button.primary")
    page.wait(f"document.querySelector('#text').value === {json.dumps(shown[0])}")
    page.wait("!document.querySelector('#answer').hidden")
    page.wait("document.querySelectorAll('#found .result').length > 0")
    first = found_ids(page)[0]
    page.click("#found .result .verdict.right")
    page.click("#correction-send")
    page.wait("document.querySelector('#found-note').textContent.startsWith('Correction stored')")
    assert page.text("#review-badge") == "2"
    view(page, "review")
    page.wait("document.querySelectorAll('#review-list > li.reviewed').length === 1")
    page.click("#review-export")
    page.wait("window.saved")
    lines = [json.loads(line) for line in page.js("window.saved").splitlines()]
    assert [line["text"] for line in lines] == shown
    assert [line["reviewed"] for line in lines] == [True, False, False]
    assert lines[0]["labels"] == [first]
    page.click("#review-clear")
    page.wait("document.querySelectorAll('#review-list > li').length === 0")


def test_one_text_can_be_kept_for_later(page):
    ask(page, "something to look at later")
    page.click("#later")
    page.wait("document.querySelector('#review-badge').textContent === '1'")
    view(page, "review")
    assert page.texts("#review-list .label-text") == ["something to look at later"]


def test_markup_in_a_label_is_text(page):
    text = '<img src=x onerror="window.hurt=1"><b>umbrella stand</b>'
    add(page, "PAGE-<i>2</i>", text)
    page.click("#try-added")
    page.wait("document.querySelector('#found .result')?.dataset.id === 'PAGE-<i>2</i>'")
    assert page.text("#found .label-text") == text
    assert page.js("document.querySelectorAll('main img, main b, main i').length") == 0
    assert page.js("window.hurt") is None


def test_a_long_label_is_cut_until_it_is_asked_for(page):
    text = "endless ribbon " + "of words without an end " * 60
    add(page, "PAGE-3", text)
    page.click("#words")
    page.type("endless ribbon")
    page.wait("document.querySelectorAll('#label-list li').length === 1")
    assert len(page.text("#label-list .label-text")) < 300
    page.click("#label-list .label-text button")
    page.wait("document.querySelector('#label-list .label-text').innerText.length > 1000")
    assert page.js("document.querySelector('#label-list button').ariaExpanded") == "true"
    page.size(360, 740)
    assert page.js("document.documentElement.scrollWidth <= innerWidth")


def test_the_run_shows_its_metrics_and_curves(page, server):
    view(page, "run")
    page.wait("document.querySelectorAll('svg.chart').length > 3")
    report = server.call("/v1/report")
    chosen = next(e for e in report["validations"] if e["epoch"] == report["model_epoch"])
    rows = page.texts("#run-body tbody tr")
    for head, row in zip(chosen["heads"].values(), rows, strict=False):
        assert f"{head['P@1']:.1f}" in row
    assert len(rows) == len(chosen["heads"]) + 1  # the ensemble has no epochs
    points = page.js("document.querySelectorAll('svg.chart')[1].querySelectorAll('circle').length")
    assert points == len(chosen["heads"]) * len(report["validations"])
    assert "Time in training" in page.text("#run-body .facts")


CONTRAST = """(() => {
  const light = (color) => {
    const [r, g, b] = color.match(/[0-9.]+/g).slice(0, 3).map((v) => {
      v /= 255;
      return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (e) => {
    for (; e; e = e.parentElement) {
      const color = getComputedStyle(e).backgroundColor;
      if (!/, 0\\)$/.test(color)) return color;
    }
    return "rgb(255, 255, 255)";
  };
  const seen = [...document.querySelectorAll("body *")].filter((e) => e.getClientRects().length
    && e.closest(".unseen") === null && !e.disabled
    && [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()));
  return seen.map((e) => {
    const svg = e.closest("svg") !== null;
    const [a, b] = [light(getComputedStyle(e)[svg ? "fill" : "color"]), light(ground(e))];
    return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), e.outerHTML.slice(0, 100)];
  }).filter(([ratio]) => ratio < 4.5);
})()"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everything_can_be_read_in_light_and_dark(page, scheme):
    page.prefer(prefers_color_scheme=scheme, prefers_reduced_motion="reduce")
    ground = page.js("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, ground[4:-1].split(","))) < 200) == (scheme == "dark")
    ask(page, TEXT)
    page.click("#found .result .verdict.right")
    page.wait("!document.querySelector('#correction').hidden")
    for name in ("predict", "labels", "run"):
        view(page, name)
        page.wait("document.querySelectorAll('.view:not([hidden]) li').length > 3")
        assert page.js(CONTRAST) == []


def test_a_narrow_screen_has_no_sideways_scroll(page):
    page.size(340, 700)
    ask(page, TEXT)
    page.click("#found .result .verdict.right")
    page.click("#later")
    page.wait("!document.querySelector('#review-badge').hidden")
    for name in ("predict", "labels", "run", "review"):
        view(page, name)
        most = 0 if name == "review" else 3
        page.wait(f"document.querySelectorAll('.view:not([hidden]) li').length > {most}")
        assert page.js("document.documentElement.scrollWidth") <= 340, name
    small = page.js(
        "[...document.querySelectorAll('button')].filter(e => e.getClientRects().length"
        " && !e.classList.contains('link') && e.getBoundingClientRect().height < 32).length"
    )
    assert small == 0


def test_tab_reaches_everything_in_order_with_a_visible_focus(page):
    page.js("document.querySelector('.skip').focus()")
    seen = []
    for _ in range(12):
        page.press("Tab")
        seen.append(page.js(
            "(() => { const e = document.activeElement, s = getComputedStyle(e);"
            " return [e.id || e.dataset.view || e.className, s.outlineStyle, s.outlineWidth]; })()"
        ))  # fmt: skip
    assert all(style == "solid" and width == "3px" for _, style, width in seen), seen
    names = [name for name, *_ in seen]
    wanted = ["predict", "labels", "run", "review", "open-token", "open-keys", "text"]
    assert names[: len(wanted)] == wanted
    assert names[len(wanted) : len(wanted) + 4] == ["how-many", "head", "later", "find"]


def test_single_keys_move_around_and_can_be_switched_off(page):
    page.js("document.activeElement.blur()")
    page.press("2")
    page.wait("!document.querySelector('#view-labels').hidden")
    page.press("/")
    assert page.js("document.activeElement.id") == "words"
    page.press("3")  # typed, not obeyed
    assert page.js("document.querySelector('#words').value") == "3"
    page.js("document.activeElement.blur()")
    page.press("?")
    assert page.js("document.querySelector('#keys-dialog').open")
    page.click("#keys-on")
    page.press("Escape")
    page.wait("!document.querySelector('#keys-dialog').open")
    page.js("document.activeElement.blur()")
    page.press("1")
    assert page.js("!document.querySelector('#view-labels').hidden")


def test_everything_that_can_be_used_has_a_name(page):
    ask(page, TEXT)
    page.click("#found .result .verdict.right")
    for name in ("predict", "labels", "run"):
        view(page, name)
        page.wait("document.querySelectorAll('.view:not([hidden]) li').length > 3")
        nodes = page.call("Accessibility.getFullAXTree")["nodes"]
        roles = ("button", "textbox", "searchbox", "combobox", "checkbox", "link", "image", "list")
        used = [n for n in nodes if n.get("role", {}).get("value") in roles and not n["ignored"]]
        nameless = [n for n in used if not n.get("name", {}).get("value")]
        nameless = [n for n in nameless if n["role"]["value"] != "list"]
        assert len(used) > 8
        assert not nameless, nameless


def test_a_token_is_asked_for_and_kept_in_memory_only(browser, run, tmp_path):
    token = "a-token-of-enough-letters"
    (tmp_path / "token").write_text(token)
    server = Server(run, read_token_file=str(tmp_path / "token"))
    page = browser.open()
    try:
        page.go(server.url)
        page.wait("document.querySelector('#token-dialog').open")
        assert "token" in page.text("#token-why")
        page.type("wrong")
        page.press("Enter")
        emptied = "document.querySelector('#token').value === ''"
        page.wait(f"document.querySelector('#token-dialog').open && {emptied}")
        page.type(token)
        page.press("Enter")
        page.wait("document.querySelector('#head').options.length > 0")
        ask(page, TEXT)
        assert len(found_ids(page)) == 10
        kept = "JSON.stringify([localStorage, sessionStorage, document.cookie, location.href])"
        assert token not in page.js(kept)
        assert token not in page.js("document.documentElement.outerHTML")
        assert not [line for line in page.complaints if "401" not in line]
    finally:
        page.close()
        server.stop()


def test_a_busy_service_is_asked_again_by_itself(browser, run):
    # One text may wait: with others asking on and on there is hardly ever room.
    server = Server(run, max_texts=1, queue_texts=2)
    enough = threading.Event()

    def crowd():
        while not enough.is_set():
            with contextlib.suppress(urllib.error.HTTPError):
                server.call("/v1/predict", {"texts": ["apple"]})

    others = [threading.Thread(target=crowd) for _ in range(6)]
    page = browser.open()
    try:
        page.go(server.url)
        page.wait("document.querySelector('#head').options.length > 0")
        for other in others:
            other.start()
        page.type(TEXT)
        for _ in range(20):  # now and then the page is the one that finds room
            page.js("document.querySelector('#found').replaceChildren()")
            page.press("Enter")
            page.wait("document.querySelector('#predict-fault .fault, #found .result')")
            if refused := page.text("#predict-fault .fault"):
                break
        enough.set()
        assert "Trying again in" in refused
        page.wait("document.querySelectorAll('#found .result').length === 10")
        assert page.text("#predict-fault") == ""
    finally:
        enough.set()
        for other in others:
            other.join()
        page.close()
        server.stop()


def test_a_service_that_is_gone_is_a_sentence(browser, run):
    server = Server(run)
    page = browser.open()
    page.go(server.url)
    page.wait("document.querySelector('#head').options.length > 0")
    server.stop()
    page.type(TEXT)
    page.press("Enter")
    page.wait("document.querySelector('#predict-fault .fault')")
    assert "cannot be reached" in page.text("#predict-fault .fault")
    page.close()


def test_the_tables_of_a_report_fit_beside_their_charts(browser, served_run, tmp_path):
    from umpteen.report import write_report

    page = browser.open()
    page.size(1100, 900)
    page.go(write_report(served_run, out=tmp_path / "report.html", device="cpu").as_uri())
    page.js("document.querySelector('#bins tbody tr').cells[2].textContent = '333 to 389'")
    widths = page.js(
        "[...document.querySelectorAll('.charts .scroll')].map(e => [e.scrollWidth, e.clientWidth])"
    )
    assert len(widths) == 2
    assert all(needed <= there for needed, there in widths), widths
    page.close()

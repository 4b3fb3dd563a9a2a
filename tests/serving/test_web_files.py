"""The page's files: nothing inline, nothing from elsewhere, data never as markup."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

import umpteen.serving

WEB = Path(umpteen.serving.__file__).parent / "web"
FILES = sorted(WEB.iterdir())
SCRIPTS = [file for file in FILES if file.suffix == ".js"]


class Elements(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.found, self.words = [], {}
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))

    def handle_data(self, data):
        if self.found and data.strip():
            self.words.setdefault(self.found[-1][0], []).append(data)


@pytest.fixture(scope="module")
def elements():
    return Elements((WEB / "index.html").read_text("utf-8"))


def test_nothing_is_inline(elements):
    for tag, attributes in elements.found:
        assert tag != "style"
        assert "style" not in attributes
        assert not [name for name in attributes if name.startswith("on")]
    assert "script" not in elements.words


def test_everything_named_is_there(elements):
    names = {file.name for file in FILES}
    for _, attributes in elements.found:
        for name in ("src", "href"):
            place = attributes.get(name, "")
            if place.startswith("/web/"):
                assert place.removeprefix("/web/") in names
            else:
                assert place == "" or place.startswith("#") or place == "/openapi.json", place


def test_ids_are_unique_and_labels_lead_to_fields(elements):
    ids = [attributes["id"] for _, attributes in elements.found if "id" in attributes]
    assert len(ids) == len(set(ids))
    fields = ("for", "aria-labelledby", "aria-describedby", "aria-controls")
    for _, attributes in elements.found:
        for name in fields:
            assert attributes.get(name, ids[0]) in ids


@pytest.mark.parametrize("file", SCRIPTS, ids=lambda file: file.name)
def test_scripts_make_no_markup_and_call_nobody_else(file):
    text = file.read_text("utf-8")
    forbidden = "innerHTML|outerHTML|insertAdjacentHTML|document.write|eval\\(|new Function"
    assert not re.search(forbidden + "|localStorage|sessionStorage|cookie", text)
    addresses = re.findall(r"https?://[^\"'` ]+", text)
    assert set(addresses) <= {"http://www.w3.org/2000/svg"}
    for name in re.findall(r'from "([^"]+)"', text):
        assert name.startswith("./")
        assert (WEB / name).is_file()
    assert text.startswith("// ")  # says what lives there


@pytest.mark.parametrize("file", SCRIPTS, ids=lambda file: file.name)
def test_scripts_ask_for_elements_that_are_there(file, elements):
    ids = {attributes.get("id") for _, attributes in elements.found}
    for name in re.findall(r'find\("([\w-]+)"\)', file.read_text("utf-8")):
        assert name in ids, name


def test_styles_load_nothing_and_respect_wishes():
    styles = "".join(f.read_text("utf-8") for f in FILES if f.suffix == ".css")
    assert not re.search(r"url\(|@import", styles)
    assert "prefers-color-scheme: dark" in styles
    moving = re.sub(
        r"@media \(prefers-reduced-motion: no-preference\) \{.*?\n\}", "", styles, flags=re.S
    )
    assert not re.search(r"transition|animation|scroll-behavior", moving)


def test_they_are_served_with_a_strict_policy(client):
    kinds = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
    for file in FILES:
        answer = client.get("/" if file.name == "index.html" else f"/web/{file.name}")
        assert answer.status_code == 200
        assert answer.content == file.read_bytes()
        assert answer.headers["content-type"].startswith(kinds.get(file.suffix, "text/html"))
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy


def test_visible_words_are_those_of_the_documentation(elements):
    shown = " ".join(words for each in elements.words.values() for words in each)
    quoted = re.findall(
        r"[\"`]([^\"`]* [^\"`]*)[\"`]", "".join(f.read_text("utf-8") for f in SCRIPTS)
    )
    for word in ("remember", "fused", "votes", "exact words", "near texts", "all parts"):
        assert word not in shown.lower()
        assert not [text for text in quoted if word in text.lower()]

from html.parser import HTMLParser

from hypothesis import given, settings
from hypothesis import strategies as st
from markupsafe import Markup

from umpteen.display import escape
from umpteen.report.elements import table, tag, user_text


class Reader(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.text, self.attributes = [], "", []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.text += data


def read(markup):
    reader = Reader()
    reader.feed(str(markup))
    reader.close()
    return reader


PRINTABLE = st.text(st.characters(exclude_categories=["Cc", "Cs", "Cn"]))


@given(PRINTABLE, PRINTABLE)
def test_no_text_or_attribute_can_leave_its_place(text, attribute):
    reader = read(tag("p", text, title=attribute))
    assert reader.tags == ["p"]
    assert reader.text == text
    assert reader.attributes == [("title", attribute)]


@settings(max_examples=50)
@given(st.text(max_size=200))
def test_any_string_can_be_written_as_utf8_without_control_characters(text):
    written = escape(text)
    written.encode("utf-8")
    assert not any(ord(c) < 32 and c not in "\t\n\r" for c in written)


def test_markup_is_not_escaped_twice():
    assert tag("p", tag("b", "&"), Markup("<i>x</i>"), None, 3) == "<p><b>&amp;</b><i>x</i>3</p>"


def test_attributes_are_spelt_as_html_spells_them():
    assert tag("path", class_="a", stroke_width=2, open=True, hidden=False, id=None) == (
        '<path class="a" stroke-width="2" open></path>'
    )


def test_long_user_texts_are_cut_to_the_given_length():
    shown = read(user_text("word " * 100, longest=20)).text
    assert shown == "word word word word…"
    assert read(user_text("  two\nlines ")).text == "two lines"


def test_table_marks_headings_and_numbers():
    markup = table(["label", "hits"], [["<b>", 3]], caption="c")
    assert '<th scope="row">&lt;b&gt;</th><td class="number">3</td>' in markup
    assert '<th scope="col" class="number">hits</th>' in markup

"""One name per concept: retired words stay out of code, page, commands and documents."""

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "umpteen"

RETIRED = {
    r"\bfused (answer|head)|\bFUSED\b|\bfusion\b|umpteen fuse\b": "ensemble",
    r"\bclf\b|[\"'`]de[\"'`]": "classifier, dual",
    r"\btilt\b": "tail_boost",
    r"\bRecipe\b|\bSettled\b|\bsettle\b": "EnsembleModel, ResolvedConfig",
    r"umpteen memory\b|\bmemory\.(kept|most|texts)\b": "umpteen examples, examples.*",
    r"\bremember(s|ed)?\b|\bBeginnings\b": "examples, store",
    r"\btold\b|\bwith_told_|\bsaid_of\b": "examples, corrections, user_keys",
    r"\bnear_labels\b": "hard_negatives",
    r"\bmargins\b|\blexical_descent\b": "one_vs_rest, lexical ranker",
    r"\blabel_(place|side)\b": "label_device, label_parametrization",
    r"(?<!at_)\b(most|least)_(?!gained|missed|frequent)[a-z]|\b(MOST|LEAST)_[A-Z]": "max_, min_",
    r"\bpace\b|\bmeasure_pace\b": "throughput",
    r"\bstand_in|\bfirst_vectors\b|\bboth_ways\b|\bnew_loop\b|\brow_codes\b": "see the glossary",
    r"\bwitness\b|\bcarried_changes\b": "revision file, previous_changes",
    r"\btrain\.graphs\b|\breplays\b|--tune\b": "(removed)",
}
"""Retired words, and what to use instead."""

BANNED = (
    r"(?i)\banew\b|\bthereof\b|\bin earnest\b|\bworth the name\b|\bwish(es)?\b|\bhears?\b"
    r"|\b(no|some|any)body\b|\btells?\b|\bspeaks?\b"
)
"""Riddles and personification."""

NOT_VERBS = {"The", "A", "An", "Whether", "How", "What", "Which", "Where"}
TEXTS = {".py", ".toml", ".js", ".html", ".css", ".md"}


def files():
    yield from sorted(path for path in SOURCE.rglob("*") if path.suffix in TEXTS - {".md"})
    for folder in ("guide", "reference", "explanation"):
        yield from sorted((ROOT / "docs" / folder).rglob("*.md"))
    yield ROOT / "README.md"


@cache
def contents():
    return [(path, path.read_text("utf-8")) for path in files()]


def hits(pattern):
    found = []
    for path, text in contents():
        if not re.search(pattern, text):
            continue
        for number, line in enumerate(text.splitlines(), start=1):
            match = re.search(pattern, line)
            if match:
                found.append(f"{path.relative_to(ROOT)}:{number}: {match[0]!r} in {line.strip()}")
    return found


def test_retired_words_are_gone():
    wrong = [f"{hit} (use {instead})" for word, instead in RETIRED.items() for hit in hits(word)]
    assert not wrong, "\n".join(wrong)


def test_code_and_texts_do_not_speak_in_riddles():
    wrong = hits(BANNED)
    assert not wrong, "\n".join(wrong)


def test_the_patterns_find_what_they_are_for():
    examples = ["fused answer", "clf", "tilt", "Settled", "remembered", "label_place", "most_k"]
    words = "|".join(RETIRED)
    assert all(re.search(words, example) for example in examples)
    allowed = ["a fused kernel", "at_least_float32", "most_gained", "the memory of a GPU", "share"]
    assert not any(re.search(words, text) for text in allowed)
    assert re.search(BANNED, "made anew")
    assert not re.search(BANNED, "the body of a request")


def test_docstrings_start_with_a_verb_in_the_imperative():
    """An article or a question word is the commonest slip."""
    wrong = []
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            text = ast.get_docstring(node) or ""
            is_property = any("property" in ast.unparse(x) for x in node.decorator_list)
            if text.split(" ")[0] in NOT_VERBS and not is_property:
                wrong.append(f"{path.relative_to(ROOT)}:{node.lineno}: {text.splitlines()[0]}")
    assert not wrong, "\n".join(wrong)


def sentences(text):
    """Yield the sentences of a page; code and headings left out, cells and items by themselves."""
    text = re.sub(r"```.*?```|<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"`[^`]*`", "X", text))
    text = re.sub(r"^#.*$|^ *(?:[-*]|\d+\.) |(?<!\\)\|", "\n\n", text, flags=re.MULTILINE)
    for paragraph in re.split(r"\n\s*\n", text):
        yield from re.split(r"(?<=[.!?:;])\s+(?=[A-Z(])", " ".join(paragraph.split()))


def test_sentences_of_the_guide_are_short():
    """About 25 words are the aim; a list of names may have some more."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs" / "guide").rglob("*.md"))]
    long = [
        f"{page.relative_to(ROOT)}: {len(each.split())} words: {each}"
        for page in pages
        for each in sentences(page.read_text("utf-8"))
        if len(each.split()) > 30
    ]
    assert not long, "\n".join(long)
    assert len(list(sentences("One. Two\nlines: Three; Four `a. B` | five\n# no\n- six"))) == 6

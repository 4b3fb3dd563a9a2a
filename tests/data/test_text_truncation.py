"""Tokenizing the beginning of a long text gives the tokens of the whole text, cut."""

from __future__ import annotations

import json
import random

import pytest
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from umpteen.data import tokens as module
from umpteen.data.text_truncation import beginning, can_cut, cut_length
from umpteen.data.tokens import TokenStore, encode, prepare, tokenize
from umpteen.model.frugal.tables import load_static_table, train_tokenizer

WORDS = [
    "the",
    "red",
    "apple,",
    "(green)",
    "pears'",
    "don't",
    "12345",
    "x-ray",
    "naïve",
    "größe",
    "日本語",
    "hello...",
    "e.g.",
    "A/B",
    "foo_bar",
    "\xa0",
    "🍎",
    "I'll",
    "İstanbul",
    "ΑΣ",
    "café",
    "<mask>",
    "a\tb",
    "c\n\nd",
    "",
    "",
    "end?!\n",
    "ok",
]
GPT4 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def corpus(seed=0, n=400, size=60):
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=size)) for _ in range(n)]


def trained(model, trainer, *, normalizer=None, pre_tokenizer=None, special=False):
    tokenizer = Tokenizer(model)
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.train_from_iterator(corpus(), trainer)
    tokenizer.add_special_tokens(["[CLS]", "[SEP]", "<mask>"])
    if special:
        marks = [(name, tokenizer.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", special_tokens=marks
        )
    return tokenizer


def bpe(size=400, **options):
    return trainers.BpeTrainer(
        vocab_size=size, special_tokens=["<unk>"], show_progress=False, **options
    )


def word_piece():
    trainer = trainers.WordPieceTrainer(
        vocab_size=300, special_tokens=["[UNK]"], show_progress=False
    )
    return trained(
        models.WordPiece(unk_token="[UNK]"), trainer, special=True,
        normalizer=normalizers.BertNormalizer(), pre_tokenizer=pre_tokenizers.BertPreTokenizer(),
    )  # fmt: skip


def byte_level():
    return trained(models.BPE(), bpe(), pre_tokenizer=pre_tokenizers.ByteLevel(), special=True)


def gpt4():
    steps = [
        pre_tokenizers.Split(Regex(GPT4), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ]
    return trained(models.BPE(), bpe(), pre_tokenizer=pre_tokenizers.Sequence(steps))


def unigram():
    trainer = trainers.UnigramTrainer(
        vocab_size=200, special_tokens=["<unk>"], unk_token="<unk>", show_progress=False
    )
    spaces = normalizers.Replace(Regex(" {2,}"), " ")
    return trained(
        models.Unigram(), trainer, special=True,
        normalizer=normalizers.Sequence([normalizers.NFKC(), spaces]),
        pre_tokenizer=pre_tokenizers.Metaspace(),
    )  # fmt: skip


def sentence_piece(split=True):
    """As Llama's: blanks become a mark, and nothing is split before the model."""
    tokenizer = trained(
        models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True), bpe(),
        normalizer=normalizers.Sequence(
            [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
        ),
        pre_tokenizer=pre_tokenizers.Metaspace(prepend_scheme="never") if split else None,
    )  # fmt: skip
    parts = json.loads(tokenizer.to_str())
    parts["pre_tokenizer"] = None
    return Tokenizer.from_str(json.dumps(parts))


def word_level():
    trainer = trainers.WordLevelTrainer(special_tokens=["<unk>"], show_progress=False)
    return trained(
        models.WordLevel(unk_token="<unk>"), trainer, pre_tokenizer=pre_tokenizers.Whitespace()
    )


def own():
    return train_tokenizer(corpus(), vocabulary=300)


KINDS = [own, word_piece, byte_level, gpt4, unigram, sentence_piece, word_level]
LONG = [*corpus(1, 20, 700), "word " * 2000, "unbroken" * 900, "\n".join(corpus(2, 60)),
        "日本語" * 1500, "_ , . " * 1500, "a " * 40 + " " * 9000 + "b", "", "short"]  # fmt: skip


def as_lists(ragged):
    bounds = ragged.offsets.tolist()
    return [ragged.ids[a:b].tolist() for a, b in zip(bounds[:-1], bounds[1:], strict=True)]


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("max_tokens", [5, 64, 300])
def test_the_tokens_are_those_of_the_whole_text_cut(make, max_tokens):
    tokenizer = make()
    prepared = prepare(tokenizer, max_tokens)
    assert can_cut(json.loads(prepared.to_str()))
    whole = [found.ids for found in prepared.encode_batch(LONG)]
    got = as_lists(encode(LONG, tokenizer, max_tokens=max_tokens))
    assert [ids for ids in got if len(ids) > 1] == [ids for ids in whole if len(ids) > 1]
    for text, ids in zip(LONG[:20], got, strict=False):
        assert as_lists(encode([text], tokenizer, max_tokens=max_tokens)) == [ids]


@pytest.mark.parametrize("make", KINDS)
def test_only_the_beginning_is_tokenized(make, monkeypatch):
    prepared = prepare(make(), 32)
    texts = corpus(4, 10, 5000)
    seen = []
    whole = module.beginning
    monkeypatch.setattr(module, "beginning", lambda *given: seen.append(whole(*given)) or seen[-1])
    encode(texts, prepared, max_tokens=32)
    assert len(seen) == 10
    assert max(map(len, seen)) < 1100
    assert min(map(len, texts)) > 20_000


def without_pre_tokenizer():
    return sentence_piece(split=False)


def with_a_token_of_two_words():
    tokenizer = word_level()
    tokenizer.add_tokens(["red apple"])
    return tokenizer


def left():
    tokenizer = word_level()
    tokenizer.enable_truncation(8, direction="left")
    return tokenizer


@pytest.mark.parametrize("make", [without_pre_tokenizer, with_a_token_of_two_words, left])
def test_where_a_cut_could_change_tokens_texts_are_read_whole(make):
    tokenizer = make()
    prepared = prepare(tokenizer, 64)
    assert cut_length(prepared) is None
    whole = [found.ids for found in prepared.encode_batch(LONG[:10])]
    assert as_lists(encode(LONG[:10], tokenizer, max_tokens=64)) == whole


def test_cutting_would_change_tokens_there():
    """Otherwise the test above shows nothing."""
    tokenizer = without_pre_tokenizer()
    pieces = json.loads(tokenizer.to_str())["model"]["vocab"]
    assert any("\u2581" in piece.lstrip("\u2581") for piece in pieces)


def test_a_store_counts_the_texts_that_were_cut(tmp_path):
    store = tokenize(LONG, word_piece(), max_tokens=64, folder=tmp_path)
    whole = [len(found.ids) for found in word_piece().encode_batch(LONG)]
    assert store.n_cut == sum(length > 64 for length in whole)
    assert store.n_cut > 20
    assert TokenStore.open(next(tmp_path.glob("*/"))).n_cut == store.n_cut


@pytest.mark.parametrize(
    ("text", "expected"),
    [("abcd efgh ijkl", "abcd efgh"), ("abcdefg hijkl", "abcdefg"), ("abcd. fgh. ijkl.", None),
     ("abcdefghijklmnop", None), ("abc", None)],
)  # fmt: skip
def test_texts_are_cut_behind_a_word(text, expected):
    assert beginning(text, 6) == expected


def test_the_tokenizer_of_the_default_encoder_can_cut():
    pytest.importorskip("wordllama")
    tokenizer = load_static_table()[0]
    prepared = prepare(tokenizer, 128)
    assert cut_length(prepared) == 1024
    texts = LONG[:12]
    whole = [found.ids for found in prepared.encode_batch(texts)]
    assert as_lists(encode(texts, tokenizer, max_tokens=128)) == whole

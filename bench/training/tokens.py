"""Time and peak memory of the token store, against one encode call per text.

    python -m bench training tokens [--texts 1000000] [--subset 20000] [--max-tokens 32]

The texts are made-up titles of about 12 words, read lazily; the time to make them is shown, as the
store reads them twice.
"""

import argparse
import importlib.util
import tempfile
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from bench.common.tables import Table
from bench.common.timing import Stopwatch, host_peak_gib
from umpteen.data.tokens import tokenize


class Titles:
    """Titles that exist only while they are read; word frequencies fall as in real text."""

    def __init__(self, words, n_texts, seed=0):
        rng = np.random.default_rng(seed)
        self.words = words
        self.lengths = rng.integers(6, 19, n_texts)
        ranks = rng.zipf(1.2, int(self.lengths.sum())) % len(words)
        self.ends = np.cumsum(self.lengths)
        self.ranks = ranks.astype(np.uint16)

    def __len__(self):
        return len(self.lengths)

    def __iter__(self):
        words, start = self.words, 0
        for end in self.ends.tolist():
            yield " ".join([words[rank] for rank in self.ranks[start:end].tolist()])
            start = end


def make_words(seed=0):
    rng = np.random.default_rng(seed)
    syllables = [a + b + c for a in "bdfgklmnprst" for b in "aeiou" for c in ["", "n", "r", "s"]]
    picks = rng.integers(0, len(syllables), (50_000, 3))
    counts = rng.integers(1, 4, 50_000)
    return [
        "".join(syllables[i] for i in row[:count])
        for row, count in zip(picks.tolist(), counts.tolist(), strict=True)
    ]


def find_tokenizer(words):
    """Wordllama's packaged tokenizer where it is installed, else a small one trained here."""
    found = importlib.util.find_spec("wordllama")
    if found is not None and found.origin:
        path = Path(found.origin).parent / "tokenizers" / "l2_supercat_tokenizer_config.json"
        if path.is_file():
            return Tokenizer.from_file(str(path)), "wordllama l2_supercat"
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.WordPieceTrainer(
        vocab_size=8000, special_tokens=["[UNK]"], show_progress=False
    )
    tokenizer.train_from_iterator(words, trainer)
    return tokenizer, "WordPiece trained here"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--texts", type=int, default=1_000_000)
    parser.add_argument("--subset", type=int, default=20_000)
    parser.add_argument("--max-tokens", type=int, default=32)


def main(given: argparse.Namespace) -> None:
    words = make_words()
    tokenizer, name = find_tokenizer(words)
    titles = Titles(words, given.texts)
    before = host_peak_gib()
    watches = {}

    def span(name):
        watches[name] = Stopwatch()
        return watches[name]

    with span("making the texts once"):
        sum(1 for _ in titles)
    with tempfile.TemporaryDirectory() as folder:
        reading = {"max_tokens": given.max_tokens, "folder": folder}
        with span("first call (tokenizes)"):
            store = tokenize(titles, tokenizer, **reading)
        after = host_peak_gib()
        with span("second call (reuses)"):
            tokenize(titles, tokenizer, **reading)
        rows = np.random.default_rng(1).integers(0, len(store), (100, 1024))
        with span("take, batches of 1024"):
            for batch in rows:
                store.take(batch)
        n_tokens = store.n_tokens
        size = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
    subset = [text for text, _ in zip(titles, range(given.subset), strict=False)]
    plain = Tokenizer.from_str(tokenizer.to_str())
    plain.enable_truncation(given.max_tokens)
    with span("one encode per text"):
        for text in subset:
            plain.encode(text)
    counts = {"take, batches of 1024": rows.size, "one encode per text": len(subset)}

    print(f"{len(titles):,} texts, {n_tokens:,} tokens, tokenizer {name}, {size / 2**20:.0f} MiB")
    table = Table(["work", "texts", "seconds", "texts/s"])
    for work, watch in watches.items():
        count = counts.get(work, len(titles))
        table.add(work, f"{count:,}", watch.wall, f"{count / watch.wall:,.0f}")
    print(f"peak memory {before:.2f} GiB before, {after:.2f} GiB after the first call")

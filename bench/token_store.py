"""Time and peak memory of the token store, against one encode call per text.

    python bench/token_store.py [--texts 1000000] [--subset 20000] [--max-tokens 32]

The texts are made-up titles of about 12 words, read lazily; the time to make them is shown, as the
store reads them twice.
"""

import argparse
import importlib.util
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

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


def seconds(function):
    start = time.perf_counter()
    result = function()
    return time.perf_counter() - start, result


def peak_mib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--texts", type=int, default=1_000_000)
    parser.add_argument("--subset", type=int, default=20_000)
    parser.add_argument("--max-tokens", type=int, default=32)
    given = parser.parse_args()
    words = make_words()
    tokenizer, name = find_tokenizer(words)
    titles = Titles(words, given.texts)
    before = peak_mib()
    reading, _ = seconds(lambda: sum(1 for _ in titles))
    with tempfile.TemporaryDirectory() as folder:
        options = {"max_tokens": given.max_tokens, "folder": folder}
        first, store = seconds(lambda: tokenize(titles, tokenizer, **options))
        after = peak_mib()
        again, _ = seconds(lambda: tokenize(titles, tokenizer, **options))
        rows = np.random.default_rng(1).integers(0, len(store), (100, 1024))
        taking, _ = seconds(lambda: [store.take(batch) for batch in rows])
        n_tokens = store.n_tokens
        size = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
    subset = [text for text, _ in zip(titles, range(given.subset), strict=False)]
    plain = Tokenizer.from_str(tokenizer.to_str())
    plain.enable_truncation(given.max_tokens)
    slow, _ = seconds(lambda: [plain.encode(text).ids for text in subset])
    per_text = slow / max(1, len(subset))

    print(f"{len(titles):,} texts, {n_tokens:,} tokens, tokenizer {name}, {size / 2**20:.0f} MiB")
    print(f"{'':34}{'seconds':>10}{'texts/s':>12}")
    for label, took, count in [
        ("making the texts once", reading, len(titles)),
        ("first call (tokenizes)", first, len(titles)),
        ("second call (reuses)", again, len(titles)),
        ("one encode per text, extrapolated", per_text * len(titles), len(titles)),
        ("take, batches of 1024", taking, rows.size),
    ]:
        print(f"{label:34}{took:>10.2f}{count / took:>12,.0f}")
    print(f"peak memory {before:.0f} MiB before, {after:.0f} MiB after the first call")


if __name__ == "__main__":
    main()

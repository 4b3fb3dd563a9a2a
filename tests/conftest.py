"""What every test may ask for: a tiny data set that can be learned, and a tiny transformer.

Every test also gets a cache folder of its own, so that nothing is read from or left in the user's.
"""

import gc
import itertools
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

collect_ignore = ["without_extras.py"]  # a script that hides packages from its process

# The same inputs on every machine, however slow it is.
settings.register_profile(
    "umpteen",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("umpteen")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")  # no test may need the network
# Read when torch is imported. Things are tiny and workers many: more threads wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
if not Path("/dev/nvidiactl").exists():
    # Kernels run in Triton's interpreter where there is no GPU. It is read when one is defined.
    os.environ.setdefault("TRITON_INTERPRET", "1")
SYNC = os.fsync
os.fsync = os.fstat  # nobody cuts the power here, and thousands of files would be waited for

N_QUERIES, N_TEST, N_LABELS = 60, 20, 40
THINGS = [
    "apple", "river", "mountain", "candle", "window", "garden", "bridge",
    "carpet", "engine", "pencil", "bottle", "shadow", "ladder", "pocket",
    "mirror", "blanket", "hammer", "basket", "feather", "lantern",
]  # fmt: skip
KINDS = ("red", "blue", "old", "tiny")
FILLERS = ("about", "some", "with", "near", "from", "under", "very", "quite")


def pytest_collection_modifyitems(config, items):
    """Slow ones first: who has nothing left to do takes over the last tests of another worker."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
    if config.pluginmanager.hasplugin("rerunfailures"):
        for item in items:
            if item.get_closest_marker("processes"):
                item.add_marker(pytest.mark.flaky(reruns=1))


def pytest_collection_finish():
    """Leave modules and tests out of garbage collections, which would visit millions of objects."""
    gc.freeze()


@pytest.fixture(scope="session")
def cache_folders(tmp_path_factory):
    """New folders, in one of their own: pytest lists all folders beside one that it makes."""
    parent = tmp_path_factory.mktemp("caches")
    return (parent / str(number) for number in itertools.count())


@pytest.fixture(autouse=True)
def _own_cache(cache_folders, monkeypatch):
    monkeypatch.setenv("UMPTEEN_CACHE", str(next(cache_folders)))


@pytest.fixture
def synced(monkeypatch):
    """Files and folders that are put on the disk for good, by their numbers, in order."""
    numbers = []

    def sync(handle):
        SYNC(handle)
        numbers.append(os.fstat(handle).st_ino)

    monkeypatch.setattr(os, "fsync", sync)
    return numbers


@pytest.fixture(scope="session")
def tiny_data():
    """60 training and 20 test queries over 40 labels; a query names its labels among fillers."""
    from umpteen.data.dataset import Dataset, Split, targets_from_rows
    from umpteen.data.labels import LabelSet

    # A label is a kind and a thing ("red apple"): each word belongs to several labels.
    titles = [f"{KINDS[row % 4]} {THINGS[row // 2]}" for row in range(N_LABELS)]
    labels = LabelSet([f"L{row:02d}" for row in range(N_LABELS)], titles)
    rng = np.random.default_rng(5)

    def split(n: int, filters: list[tuple[int, int]]) -> Split:
        words, rows = [], []
        for query in range(n):
            # The first label goes round, so that every label has a training query.
            wanted = {query % N_LABELS, *rng.choice(N_LABELS, rng.integers(0, 3)).tolist()}
            text = " ".join(titles[row] for row in sorted(wanted))
            words.append(f"{rng.choice(FILLERS)} {text} {rng.choice(FILLERS)}")
            rows.append(sorted(wanted))
        pairs = np.array(filters, np.int64).reshape(-1, 2)
        return Split(
            words,
            targets_from_rows(rows, N_LABELS),
            ids=[f"q{i}" for i in range(n)],
            filters=pairs,
        )

    splits = {
        "train": split(N_QUERIES, [(0, 3), (7, 21)]),
        "test": split(N_TEST, [(1, 5)]),
    }
    return Dataset(labels, splits, name="tiny")


@pytest.fixture(scope="session")
def tiny_data_folder(tiny_data, tmp_path_factory) -> Path:
    """The tiny data as a jsonl folder; copy it before changing anything in it."""
    from umpteen.data.convert import save_dataset

    folder = tmp_path_factory.mktemp("tiny") / "data"
    save_dataset(tiny_data, folder, to="jsonl")
    return folder


@pytest.fixture(scope="session")
def tiny_run(tiny_data, tmp_path_factory) -> Path:
    """A trained run on the tiny data with a fitted ensemble; copy it before changing it."""
    from small_runs import fit

    run = tmp_path_factory.mktemp("tiny-run") / "run"
    ensemble = ("ensemble.enabled=auto", "ensemble.min_queries=5")
    fit(tiny_data, run, "validation.share=0.4", "train.epochs=6", *ensemble)
    return run


@pytest.fixture(scope="session")
def tiny_bert(tiny_data, tmp_path_factory) -> Path:
    """A Hugging Face folder: BERT with 2 layers of 32 and a WordPiece learned from the data."""
    import torch
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=200, special_tokens=special, show_progress=False)
    texts = [*tiny_data["train"].texts(), *tiny_data.labels.encoder_texts()]
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    config = BertConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
        pad_token_id=0,
    )
    folder = tmp_path_factory.mktemp("tiny-bert")
    with torch.random.fork_rng():
        torch.manual_seed(3)
        BertModel(config).save_pretrained(folder)
    names = {f"{word.strip('[]').lower()}_token": word for word in special}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)
    return folder

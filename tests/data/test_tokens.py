"""The token store against one encode call per text."""

import multiprocessing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers

from umpteen.data import tokens as module
from umpteen.data.tokens import TokenStore, encode, prepare, tokenize
from umpteen.errors import ConfigError, DataError

TEXTS = [
    "a red apple and a long yellow banana",
    "",
    "größe straße ünïcode",
    "日本語のテキスト",
    "apple",
    "🍎 🍌 fruit",
    "   ",
    "a very long text " * 20,
    "tab\tand\nnewline",
]


def make_tokenizer(special: bool = True, vocabulary: int = 90) -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocabulary,
        special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]"],
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    if special:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
        )
    return tokenizer


def expected(tokenizer: Tokenizer, texts, max_tokens):
    """One call per text, cut by hand: the special tokens at both ends stay."""
    lists = []
    for text in texts:
        ids = tokenizer.encode(text).ids
        if len(ids) > max_tokens:
            inner = tokenizer.encode(text, add_special_tokens=False).ids
            ids = [2, *inner[: max_tokens - 2], 3] if ids != inner else inner[:max_tokens]
        lists.append(ids or [1])
    return lists


def as_lists(ragged):
    bounds = ragged.offsets.tolist()
    return [ragged.ids[a:b].tolist() for a, b in zip(bounds[:-1], bounds[1:], strict=True)]


@pytest.mark.parametrize("special", [True, False])
@pytest.mark.parametrize("max_tokens", [3, 7, 64])
@pytest.mark.parametrize("count", [0, 1, 7, 9])
def test_store_equals_one_encode_per_text(tmp_path, special, max_tokens, count):
    tokenizer = make_tokenizer(special)
    store = tokenize(TEXTS[:count], tokenizer, max_tokens=max_tokens, folder=tmp_path)
    assert len(store) == count
    wanted = expected(tokenizer, TEXTS[:count], max_tokens)
    assert as_lists(store.take(np.arange(count))) == wanted
    assert store.lengths.tolist() == [len(ids) for ids in wanted]
    assert store.n_tokens == sum(map(len, wanted))
    assert as_lists(encode(TEXTS[:count], tokenizer, max_tokens=max_tokens)) == wanted


def test_chunks_do_not_show_in_the_result(tmp_path, monkeypatch):
    tokenizer = make_tokenizer()
    texts = TEXTS * 3
    wanted = expected(tokenizer, texts, 9)
    keys = set()
    for count, characters in [(4, 10**6), (100, 30), (5, 1)]:
        monkeypatch.setattr(module, "TEXTS_PER_CHUNK", count)
        monkeypatch.setattr(module, "CHARACTERS_PER_CHUNK", characters)
        folder = tmp_path / f"{count}-{characters}"
        seen = []
        store = tokenize(
            texts,
            tokenizer,
            max_tokens=9,
            folder=folder,
            progress=lambda done, total, seen=seen: seen.append((done, total)),
        )
        assert as_lists(store.take(np.arange(len(texts)))) == wanted
        assert seen[-1] == (len(texts), len(texts))
        assert len(seen) > 1
        keys.add(store.key)
    assert len(keys) == 1


def test_text_without_tokens_gets_the_unknown_token(tmp_path):
    store = tokenize(["", "apple", "  "], make_tokenizer(False), max_tokens=5, folder=tmp_path)
    assert store.take([0]).ids.tolist() == [1]
    assert store.take([2]).ids.tolist() == [1]
    assert store.lengths.min() == 1


def test_text_without_tokens_gets_the_padding_token_where_nothing_is_unknown(tmp_path):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.add_special_tokens(["x", "<pad>"])
    assert tokenize([""], tokenizer, max_tokens=5, folder=tmp_path).ids.tolist() == [1]


def test_tokenizer_is_left_as_it_was(tmp_path):
    tokenizer = make_tokenizer()
    tokenizer.enable_padding(pad_id=0, length=12)
    tokenizer.enable_truncation(4)
    before = tokenizer.to_str()
    store = tokenize(TEXTS, tokenizer, max_tokens=40, folder=tmp_path)
    assert tokenizer.to_str() == before
    assert store.lengths.max() == 40
    assert 0 not in store.ids


def test_second_call_reuses_the_files(tmp_path):
    tokenizer = make_tokenizer()
    first = tokenize(TEXTS, tokenizer, max_tokens=8, folder=tmp_path)
    file = tmp_path / first.key / "ids.npy"
    before = (file.stat().st_mtime_ns, file.stat().st_ino)

    def fail(done, total):
        raise AssertionError("tokenized again")

    second = tokenize(tuple(TEXTS), tokenizer, max_tokens=8, folder=tmp_path, progress=fail)
    assert (file.stat().st_mtime_ns, file.stat().st_ino) == before
    assert second.key == first.key
    assert np.array_equal(second.ids, first.ids)


def test_key_depends_on_texts_length_and_tokenizer(tmp_path):
    def key(texts, tokenizer, max_tokens):
        return tokenize(texts, tokenizer, max_tokens=max_tokens, folder=tmp_path).key

    tokenizer = make_tokenizer()
    keys = [
        key(["ab", "c"], tokenizer, 8),
        key(["a", "bc"], tokenizer, 8),
        key(["abc"], tokenizer, 8),
        key(["ab", "c", ""], tokenizer, 8),
        key(["ab", "c"], tokenizer, 9),
        key(["ab", "c"], make_tokenizer(False), 8),
        key(["ab", "c"], make_tokenizer(vocabulary=60), 8),
    ]
    assert len(set(keys)) == len(keys)


def cut_short(folder: Path) -> None:
    file = folder / "ids.npy"
    file.write_bytes(file.read_bytes()[:-2])


def flip_a_byte(folder: Path) -> None:
    file = folder / "ids.npy"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


def lose_offsets(folder: Path) -> None:
    (folder / "offsets.npy").unlink()


def break_json(folder: Path) -> None:
    (folder / "tokens.json").write_text('{"format": 1, "ids"')


def lose_json_fields(folder: Path) -> None:
    (folder / "tokens.json").write_text('{"format": 1}')


@pytest.mark.parametrize(
    "damage", [cut_short, flip_a_byte, lose_offsets, break_json, lose_json_fields]
)
def test_damaged_store_is_detected_and_made_anew(tmp_path, damage):
    tokenizer = make_tokenizer()
    store = tokenize(TEXTS, tokenizer, max_tokens=8, folder=tmp_path)
    wanted = as_lists(store.take(np.arange(len(TEXTS))))
    folder = tmp_path / store.key
    del store
    damage(folder)
    with pytest.raises(DataError):
        TokenStore.open(folder)
    again = tokenize(TEXTS, tokenizer, max_tokens=8, folder=tmp_path)
    assert as_lists(again.take(np.arange(len(TEXTS)))) == wanted


def test_interrupted_work_leaves_no_store(tmp_path):
    def stop(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tokenize(TEXTS, make_tokenizer(), max_tokens=8, folder=tmp_path, progress=stop)
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_take_equals_a_loop(data):
    lengths = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=12))
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    ids = np.random.default_rng(3).integers(0, 999, offsets[-1]).astype(np.uint16)
    rows = data.draw(st.lists(st.integers(0, len(lengths) - 1), max_size=20))
    taken = TokenStore(ids, offsets).take(rows)
    assert taken.ids.dtype == np.int32
    assert taken.offsets.dtype == np.int64
    assert as_lists(taken) == [ids[offsets[row] : offsets[row + 1]].tolist() for row in rows]


@pytest.mark.parametrize("rows", [[-1], [2], [0, 5]])
def test_take_refuses_rows_outside_the_store(rows):
    store = TokenStore(np.arange(3, dtype=np.int32), np.array([0, 1, 3]))
    with pytest.raises(IndexError, match=r"\[0, 2\)"):
        store.take(rows)


def test_large_vocabulary_is_stored_in_full(tmp_path):
    vocabulary = {f"w{i}": i for i in range(70_000)} | {"[UNK]": 70_000}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    store = tokenize(["w69999 w1", "w65536 what"], tokenizer, max_tokens=4, folder=tmp_path)
    assert store.ids.dtype == np.int32
    assert store.ids.tolist() == [69_999, 1, 65_536, 70_000]


def test_errors_say_which_text(tmp_path):
    tokenizer = make_tokenizer()
    with pytest.raises(DataError, match="text 1 is of type float; expected a string"):
        tokenize(["a", float("nan")], tokenizer, max_tokens=8, folder=tmp_path)
    with pytest.raises(DataError, match="text 2 holds half of a surrogate pair"):
        tokenize(["a", "ü", "\ud800"], tokenizer, max_tokens=8, folder=tmp_path)
    with pytest.raises(ConfigError, match="adds 2 special tokens.*at least 3"):
        tokenize(["a"], tokenizer, max_tokens=2, folder=tmp_path)
    for text, why in ((None, "text 0 is of type NoneType"), ("\udfff", "text 0 holds half")):
        with pytest.raises(DataError, match=why):
            encode([text], tokenizer, max_tokens=8)


def _tokenize_there(folder, queue, description):
    calls = []
    tokenizer = Tokenizer.from_str(description)
    store = tokenize(
        TEXTS, tokenizer, max_tokens=8, folder=folder, progress=lambda *_: calls.append(1)
    )
    queue.put((len(calls), store.n_tokens))


@pytest.mark.processes
def test_processes_that_ask_at_once_do_the_work_once(tmp_path):
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    given = (tmp_path, queue, make_tokenizer().to_str())
    workers = [context.Process(target=_tokenize_there, args=given) for _ in range(2)]
    for worker in workers:
        worker.start()
    results = [queue.get(timeout=180) for _ in workers]
    for worker in workers:
        worker.join()
    assert sorted(calls for calls, _ in results) == [0, 1]
    assert len({n for _, n in results}) == 1


def test_prepared_tokenizer_is_not_copied_again_and_encodes_the_same():
    tokenizer = make_tokenizer()
    tokenizer.enable_padding(length=20)
    prepared = prepare(tokenizer, 7)
    assert prepared is not tokenizer
    assert prepare(prepared, 7) is prepared
    assert prepare(prepared, 8) is not prepared
    first, second = (encode(TEXTS, given, max_tokens=7) for given in (tokenizer, prepared))
    assert as_lists(first) == as_lists(second)


def test_side_of_truncation_is_kept():
    tokenizer = make_tokenizer(False)
    tokenizer.enable_truncation(99, direction="left")
    whole = tokenizer.encode(TEXTS[0]).ids
    assert encode(TEXTS[:1], tokenizer, max_tokens=3).ids.tolist() == whole[-3:]

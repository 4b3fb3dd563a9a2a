"""Texts tokenized once into memory-mapped ragged arrays. No padding, batches or torch here."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from umpteen.data.arrays_on_disk import ArrayWriter, open_array
from umpteen.data.text_truncation import MIN_CHARACTERS, beginning, cut_length
from umpteen.errors import ConfigError, DataError
from umpteen.files import atomic_folder, read_json, write_json
from umpteen.types import Ragged, offsets_of

if TYPE_CHECKING:
    from tokenizers import Tokenizer

FindLength = Callable[[], int | None]
"""Returns what ``cut_length`` does; called only for long texts, and best computed once."""

STORE_FORMAT = 2
TEXTS_PER_CHUNK = 8192
CHARACTERS_PER_CHUNK = 4_000_000  # the tokenizer's own results take some 100 bytes per character


@dataclass(frozen=True)
class TokenStore:
    """Token ids of many texts, flat; text i is ``ids[offsets[i] : offsets[i + 1]]``.

    Every text has at least one token. The arrays are usually memory maps, so a store of any size
    costs no memory until rows are taken.
    """

    ids: NDArray[Any]
    """(T,) uint16 where the vocabulary fits, else int32."""
    offsets: NDArray[np.int64]
    """(N + 1,) where each text starts."""
    key: str = ""
    """What it was made from: a digest of tokenizer, length and texts."""
    n_cut: int = 0
    """Texts that are longer than the tokens which are kept of them."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def n_tokens(self) -> int:
        """Tokens of all texts together."""
        return len(self.ids)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(N,) tokens of each text."""
        return np.diff(self.offsets)

    def take(self, rows: Any) -> Ragged:
        """Return the tokens of some texts, in the given order; rows may repeat.

        Args:
            rows: (B,) positions of texts.

        Returns:
            int32 ids and int64 offsets, in memory.

        Raises:
            IndexError: If a row is not in the store.
        """
        rows = np.asarray(rows, dtype=np.int64).reshape(-1)
        if len(rows) and (rows.min() < 0 or rows.max() >= len(self)):
            raise IndexError(f"rows must be in [0, {len(self)})")
        starts = self.offsets[rows]
        lengths = self.offsets[rows + 1] - starts
        offsets = offsets_of(lengths)
        places = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)  # (T,)
        return Ragged(self.ids[places].astype(np.int32), offsets)

    @classmethod
    def open(cls, folder: str | Path) -> TokenStore:
        """Open a store, checking every byte of it.

        Args:
            folder: The folder ``tokenize`` made (the one named by the key).

        Returns:
            The store, memory-mapped.

        Raises:
            DataError: If a file is missing, or is not what was written.
        """
        folder = Path(folder)
        about = read_json(folder / "tokens.json", error=DataError)
        if not isinstance(about, dict) or about.get("format") != STORE_FORMAT:
            raise DataError("not a token store of this version", path=folder / "tokens.json")
        ids = open_array(folder / "ids.npy", about.get("ids"))
        offsets = open_array(folder / "offsets.npy", about.get("offsets"))
        return cls(ids, offsets, str(about.get("key")), int(about.get("cut", 0)))


def tokenize(
    texts: Sequence[str],
    tokenizer: Tokenizer,
    *,
    max_tokens: int,
    folder: str | Path,
    progress: Callable[[int, int], None] | None = None,
) -> TokenStore:
    """Tokenize texts in parallel, or reuse what an earlier call with the same input wrote.

    The store lives in ``folder/KEY``, KEY being a digest of tokenizer, ``max_tokens`` and texts. A
    damaged store is written again. Texts are read twice, in chunks, and never held. Several
    processes may call it at once: one works, the others wait for it.

    Args:
        texts: Anything with a length that can be iterated over more than once.
        tokenizer: Left as it is; its padding is not used, its truncation is replaced.
        max_tokens: Longer texts are cut to this, special tokens included.
        folder: Where stores are kept.
        progress: Called with (texts done, texts in all); not at all on reuse.

    Returns:
        The store.

    Raises:
        ConfigError: If ``max_tokens`` leaves no room for a token of the text.
        DataError: If a text is not a string or not valid Unicode.
    """
    folder = Path(folder)
    prepared = prepare(tokenizer, max_tokens)
    key = _key(texts, prepared)
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder):
        with contextlib.suppress(DataError):
            return TokenStore.open(folder / key)
        with atomic_folder(folder / key, replace=True) as temporary:
            _write(temporary, key, texts, prepared, progress)
        return TokenStore.open(folder / key)


def encode(
    texts: Sequence[str],
    tokenizer: Tokenizer,
    *,
    max_tokens: int,
    find_length: FindLength | None = None,
) -> Ragged:
    """Tokenize a few texts in memory; equal to what a store of the same texts gives.

    Args:
        texts: The texts.
        tokenizer: Left as it is; best a prepared one (see ``prepare``) if there are many calls.
        max_tokens: Longer texts are cut to this, special tokens included.
        find_length: Returns ``cut_length`` of the prepared tokenizer, where it is known already.

    Returns:
        int32 ids and int64 offsets.

    Raises:
        ConfigError: If ``max_tokens`` leaves no room for a token of the text.
        DataError: If a text is not a string or not valid Unicode.
    """
    prepared = prepare(tokenizer, max_tokens)
    length = find_length or functools.cache(lambda: cut_length(prepared))
    if len(texts) == 1:  # which needs no chunks; finding that out takes as long as its tokens
        _check(list(texts), 0)
        one = _encode(list(texts), prepared, length)
        return Ragged(one.ids, offsets_of(one.lengths))
    parts = [_encode(part, prepared, length) for part, _ in _chunks(texts)]
    lengths = np.concatenate([np.empty(0, np.int64), *(part.lengths for part in parts)])
    ids = np.concatenate([np.empty(0, np.int32), *(part.ids for part in parts)])
    return Ragged(ids, offsets_of(lengths))


def prepare(tokenizer: Tokenizer, max_tokens: int, *, owned: bool = False) -> Tokenizer:
    """Return a copy that truncates and does not pad.

    ``encode`` takes such a one without copying again.

    Copying goes through the tokenizer's JSON and takes a tenth of a second or more: do it once, not
    for every request. A tokenizer that is prepared already is returned as it is.

    Args:
        tokenizer: Left as it is; the side it truncates on is kept.
        max_tokens: Longer texts are cut to this, special tokens included.
        owned: Whether the caller alone has the tokenizer: then it is changed, and not copied.

    Raises:
        ConfigError: If ``max_tokens`` leaves no room for a token of the text.
    """
    from tokenizers import Tokenizer

    special = tokenizer.num_special_tokens_to_add(False)
    if max_tokens <= special:
        raise ConfigError(
            f"max_tokens is {max_tokens}, but the tokenizer adds {special} special tokens to "
            f"each text; give at least {special + 1}"
        )
    before = tokenizer.truncation or {}
    wanted = {
        "max_length": max_tokens,
        "stride": 0,
        "strategy": "longest_first",
        "direction": before.get("direction", "right"),
    }
    if before == wanted and tokenizer.padding is None:
        return tokenizer
    copy = tokenizer if owned else Tokenizer.from_str(tokenizer.to_str())
    copy.enable_truncation(**wanted)
    copy.no_padding()
    return copy


def _empty_id(tokenizer: Tokenizer) -> int:
    """Return the id for a text without tokens.

    The unknown token's, else the padding token's, else 0.
    """
    unknown = getattr(tokenizer.model, "unk_token", None)
    for token in (unknown, "[UNK]", "<unk>", "[PAD]", "<pad>"):
        found = tokenizer.token_to_id(token) if token else None
        if found is not None:
            return int(found)
    return 0


def _key(texts: Iterable[str], prepared: Tokenizer) -> str:
    """Return a digest of the tokenizer (its length limit included) and of every text."""
    # Lengths count too: the same characters cut at other places are other texts.
    characters, cuts = hashlib.sha256(), hashlib.sha256()
    for part, lengths in _chunks(texts):
        characters.update("".join(part).encode())
        cuts.update(lengths.tobytes())
    digest = hashlib.sha256(f"umpteen tokens {STORE_FORMAT}\n{prepared.to_str()}".encode())
    digest.update(characters.digest() + cuts.digest())
    return digest.hexdigest()


def _chunks(texts: Iterable[str]) -> Iterator[tuple[list[str], NDArray[np.int64]]]:
    """Yield texts in chunks bounded in number and in characters.

    With their lengths in characters.
    """
    source, start = iter(texts), 0
    while block := list(islice(source, TEXTS_PER_CHUNK)):
        _check(block, start)
        lengths = np.fromiter(map(len, block), np.int64, len(block))
        pile = np.cumsum(lengths) // CHARACTERS_PER_CHUNK
        cuts = [0, *(np.flatnonzero(np.diff(pile)) + 1).tolist(), len(block)]
        for first, last in zip(cuts[:-1], cuts[1:], strict=True):
            yield block[first:last], lengths[first:last]
        start += len(block)


def _check(block: list[str], start: int) -> None:
    """Raise for the first text that no tokenizer can read."""
    try:
        "".join(block).encode()
    except (TypeError, UnicodeEncodeError):
        for row, text in enumerate(block, start):
            if not isinstance(text, str):
                kind = type(text).__name__
                raise DataError(f"text {row} is of type {kind}; expected a string") from None
            if not text.isascii() and text.encode(errors="ignore").decode() != text:
                raise DataError(
                    f"text {row} holds half of a surrogate pair, which is not valid Unicode; "
                    "correct or replace that character"
                ) from None


@dataclass(frozen=True)
class _Encoded:
    """Token ids of some texts, flat, and the tokens of each text; none of them is 0."""

    ids: NDArray[np.int32]
    lengths: NDArray[np.int64]
    n_cut: int
    """Texts of which not all was read."""


def _encode(part: list[str], prepared: Tokenizer, find_length: FindLength) -> _Encoded:
    empty_id = _empty_id(prepared)
    found = _encode_beginnings(part, prepared, find_length)
    lists = [encoding.ids or [empty_id] for encoding in found]
    lengths = np.fromiter(map(len, lists), np.int64, len(lists))
    ids = np.fromiter(chain.from_iterable(lists), np.int32, int(lengths.sum()))
    return _Encoded(ids, lengths, sum(1 for encoding in found if encoding.overflowing))


def _encode_beginnings(part: list[str], prepared: Tokenizer, find_length: FindLength) -> list[Any]:
    """Tokenize the first part of long texts, and all of a text whose first part is not enough."""
    longest = max(map(len, part), default=0)
    if longest < 2 * MIN_CHARACTERS:
        return list(prepared.encode_batch_fast(part))
    length = find_length()
    if length is None or longest < 2 * length:
        return list(prepared.encode_batch_fast(part))
    cut = [beginning(text, length) for text in part]
    given = [text if less is None else less for text, less in zip(part, cut, strict=True)]
    found = list(prepared.encode_batch_fast(given))
    again = [i for i, less in enumerate(cut) if less is not None and not found[i].overflowing]
    for i, encoding in zip(
        again, prepared.encode_batch_fast([part[i] for i in again]), strict=True
    ):
        found[i] = encoding
    return found


def _write(
    folder: Path,
    key: str,
    texts: Sequence[str],
    prepared: Tokenizer,
    progress: Callable[[int, int], None] | None,
) -> None:
    largest = max(prepared.get_vocab(with_added_tokens=True).values(), default=0)
    dtype = np.dtype(np.uint16 if largest < 2**16 else np.int32)
    done, n_tokens, n_cut = 0, 0, 0
    length = functools.cache(lambda: cut_length(prepared))
    with (
        ArrayWriter(folder / "ids.npy", dtype) as ids_file,
        ArrayWriter(folder / "offsets.npy", np.dtype(np.int64)) as offsets_file,
    ):
        offsets_file.append(np.zeros(1, np.int64))
        for part, _ in _chunks(texts):
            found = _encode(part, prepared, length)
            ids_file.append(found.ids.astype(dtype))
            offsets_file.append(n_tokens + np.cumsum(found.lengths))
            done, n_tokens = done + len(part), n_tokens + len(found.ids)
            n_cut += found.n_cut
            if progress is not None:
                progress(done, len(texts))
    about: dict[str, Any] = {"format": STORE_FORMAT, "key": key, "cut": n_cut}
    about |= {"ids": ids_file.about, "offsets": offsets_file.about}
    write_json(folder / "tokens.json", about)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, so that ranks of one job do not all tokenize the same texts."""
    with open(folder / ".lock", "w", encoding="utf-8") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield

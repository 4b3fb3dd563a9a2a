"""Training texts, shortened, that a run stores so that near ones can vote. Encodes nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from umpteen.data.csr import checked_csr
from umpteen.errors import RunError
from umpteen.files import LOAD_ERRORS
from umpteen.ranking.lexical.sparse_topk import DeviceMatrix, inverted_texts

MAX_CHARACTERS = 300
"""Characters of a text that are kept."""
_TARGETS = ("targets_indices", "targets_indptr")
_TERMS = ("terms_data", "terms_indices", "terms_indptr")


def shorten(text: str) -> str:
    """Return the text, or its beginning and an ellipsis where it is long."""
    return text if len(text) <= MAX_CHARACTERS else text[: MAX_CHARACTERS - 1] + "…"


@dataclass(frozen=True)
class TextSnippets:
    """The first characters of M texts.

    Example:
        >>> kept = TextSnippets.of(["apple", "", "pear"])
        >>> len(kept), kept[2]
        (3, 'pear')
    """

    content: NDArray[np.uint8]
    """(bytes,) UTF-8, one text after another; memory-mapped after loading."""
    offsets: NDArray[np.int64]
    """(M + 1,) where each text starts."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> str:
        start, stop = self.offsets[row], self.offsets[row + 1]
        return self.content[start:stop].tobytes().decode("utf-8", "replace")

    @property
    def n_bytes(self) -> int:
        """Size on disk."""
        return int(self.content.nbytes + self.offsets.nbytes)

    @classmethod
    def of(cls, texts: Sequence[str]) -> TextSnippets:
        """Shorten texts and store them."""
        parts = [shorten(text).encode("utf-8", "replace") for text in texts]
        offsets = np.zeros(len(parts) + 1, np.int64)
        np.cumsum([len(part) for part in parts], out=offsets[1:])
        return cls(np.frombuffer(b"".join(parts), np.uint8), offsets)

    def save(self, folder: Path) -> None:
        """Write into an existing folder."""
        np.save(folder / "texts.npy", self.content, allow_pickle=False)
        np.save(folder / "texts_offsets.npy", self.offsets, allow_pickle=False)

    @classmethod
    def load(cls, folder: Path, n: int) -> TextSnippets | None:
        """Read what ``save`` wrote.

        Args:
            folder: The folder.
            n: The expected number of texts.

        Returns:
            None where no texts were kept.

        Raises:
            RunError: If the files are damaged.
        """
        if not (folder / "texts_offsets.npy").is_file():
            return None
        try:
            offsets = np.load(folder / "texts_offsets.npy", allow_pickle=False)
            mode: Literal["r"] | None = "r" if int(offsets[-1]) else None  # empty: cannot be mapped
            content = np.load(folder / "texts.npy", mmap_mode=mode, allow_pickle=False)
            rising = offsets.shape == (n + 1,) and offsets.dtype.kind == "i"
            rising = rising and offsets[0] == 0 and bool((np.diff(offsets) >= 0).all())
            if not rising or content.shape != (offsets[-1],) or content.dtype != np.uint8:
                raise ValueError(f"{content.shape} bytes for {n} texts do not fit their offsets")
        except LOAD_ERRORS as error:
            raise RunError(f"{folder} is damaged: {error}; fit the ensemble again") from error
        return cls(content, offsets)


@dataclass(frozen=True)
class TrainedExamples:
    """M training texts: their search vectors, tf-idf terms and labels."""

    vectors: NDArray[np.float32]
    """(M, heads * dim), memory-mapped after loading."""
    targets: sp.csr_matrix
    """(M, L) ones."""
    digests: NDArray[np.uint64]
    """(M,) of the texts, to find a text again."""
    terms: sp.csr_matrix
    """(M, V) tf-idf rows; V is 0 where there is no lexical scorer."""
    texts: TextSnippets | None = None
    """To be shown beside predictions; None where they are not kept."""

    def __len__(self) -> int:
        return len(self.digests)

    @cached_property
    def inverted_terms(self) -> sp.csr_matrix:
        """(V, M) the terms as an inverted index; of many texts the largest values of a term."""
        return inverted_texts(self.terms)

    def inverted_terms_on(self, device: torch.device) -> DeviceMatrix:
        """Return the inverted index on a device; copied there once."""
        return self._copied("inverted_terms", self.inverted_terms, device)

    def targets_on(self, device: torch.device) -> DeviceMatrix:
        """Return the labels of all texts on a device; copied there once."""
        return self._copied("targets", self.targets, device)

    def _copied(self, name: str, matrix: sp.csr_matrix, device: torch.device) -> DeviceMatrix:
        copies: dict[tuple[str, str], DeviceMatrix] = self.__dict__.setdefault("_copies", {})
        key = (name, str(device))
        if key not in copies:
            copies[key] = DeviceMatrix.of(matrix, device)
        return copies[key]

    @property
    def n_bytes(self) -> int:
        """Size on disk and, once searched, in memory."""
        sparse = [m.data.nbytes + m.indices.nbytes + m.indptr.nbytes for m in (self.terms,)]
        own = self.targets.indices.nbytes + self.targets.indptr.nbytes
        shown = self.texts.n_bytes if self.texts is not None else 0
        return int(self.vectors.nbytes + self.digests.nbytes + own + sum(sparse) + shown)

    def save(self, folder: Path) -> None:
        """Write into an existing folder; terms in half precision."""
        arrays = {
            "vectors": np.asarray(self.vectors, np.float32),
            "digests": self.digests,
            "targets_indices": self.targets.indices,
            "targets_indptr": self.targets.indptr,
            "terms_data": self.terms.data.astype(np.float16),
            "terms_indices": self.terms.indices,
            "terms_indptr": self.terms.indptr,
        }
        for name, array in arrays.items():
            np.save(folder / f"{name}.npy", array, allow_pickle=False)
        if self.texts is not None:
            self.texts.save(folder)

    @classmethod
    def load(cls, folder: Path, *, n_labels: int, n_terms: int, width: int) -> TrainedExamples:
        """Read what ``save`` wrote.

        Args:
            folder: The folder.
            n_labels: L.
            n_terms: V.
            width: heads * dim.

        Returns:
            The examples; vectors stay on the disk until the first search.

        Raises:
            RunError: If something is missing or does not fit.
        """

        def read(name: str) -> Any:
            return np.load(folder / f"{name}.npy", allow_pickle=False)

        try:
            # "c": torch needs writable memory; what it would write never reaches the file.
            vectors = np.load(folder / "vectors.npy", mmap_mode="c", allow_pickle=False)
            digests = read("digests")
            columns, offsets = (read(name) for name in _TARGETS)
            values, term_columns, term_offsets = (read(name) for name in _TERMS)
            n = len(digests)
            ones = np.ones(len(columns), np.float32)
            targets = checked_csr(ones, columns, offsets, (n, n_labels))
            terms = checked_csr(values.astype(np.float32), term_columns, term_offsets, (n, n_terms))
        except LOAD_ERRORS as error:
            raise RunError(f"{folder} is damaged: {error}; fit the ensemble again") from error
        if vectors.shape != (n, width) or vectors.dtype != np.float32:
            raise RunError(
                f"{folder / 'vectors.npy'} has the shape {vectors.shape}, expected {(n, width)}; "
                "fit the ensemble again"
            )
        return cls(vectors, targets, digests, terms, TextSnippets.load(folder, n))


def digest_texts(texts: Sequence[str]) -> NDArray[np.uint64]:
    """(N,) the first eight bytes of each text's SHA-256."""
    sums = [hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8] for text in texts]
    return np.frombuffer(b"".join(sums), np.uint64).copy()


def read_digests(file: Path) -> NDArray[np.uint64]:
    """Read digests of texts; none where there is no file.

    Raises:
        RunError: If the file is damaged.
    """
    if not file.is_file():
        return np.empty(0, np.uint64)
    try:
        found: NDArray[np.uint64] = np.load(file, allow_pickle=False)
        if found.dtype != np.uint64 or found.ndim != 1:
            raise ValueError(f"shape {found.shape} of {found.dtype}")
    except LOAD_ERRORS as error:
        raise RunError(f"{file} is damaged: {error}") from error
    return found


def ones_like(targets: sp.csr_matrix) -> sp.csr_matrix:
    """Return the same positives, all of relevance one."""
    return sp.csr_matrix(
        (np.ones(targets.nnz, np.float32), targets.indices, targets.indptr), shape=targets.shape
    )

"""The ``npz`` format: raw texts one per line and label matrices as SciPy sparse archives.

``raw/trn_X.txt``, ``raw/tst_X.txt`` and ``raw/Y.txt`` hold the texts, ``Y.trn.npz`` and
``Y.tst.npz`` the matrices (queries by labels). Reads fastest of all; holds as little as ``xc-text``
does. Archives with pickled objects are refused.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from umpteen.data.csr import checked_csr
from umpteen.data.dataset import Dataset, Split
from umpteen.data.formats import folder as shared
from umpteen.data.formats import texts
from umpteen.data.formats.lines import check_fits, open_bytes
from umpteen.data.formats.targets import Unit, first_repeat
from umpteen.errors import DataError

HOLDS = texts.HOLDS
UNIT: Unit = "line"
FILES = {"train": ("Y.trn.npz",), "validation": ("Y.val.npz", "Y.dev.npz"), "test": ("Y.tst.npz",)}
RAW = "raw"
LABELS = ("Y.txt",)


def sniff(path: Path) -> bool:
    """Return whether the folder has one of the matrices."""
    return shared.has_any(path, FILES)


def read(path: Path) -> Dataset:
    """Read a folder.

    Args:
        path: The folder.

    Returns:
        The data set; label ids are the rows of raw/Y.txt, counted from 0.

    Raises:
        DataError: With the file, if something is wrong.
    """
    matrices = _matrix_files(path)
    labels = texts.read_label_texts(shared.require_one(path / RAW, LABELS, "the label texts"))
    splits = {}
    for name, text_file in files(path).items():
        titles = texts.read_texts(text_file)
        matrix = _read_matrix(matrices[name])
        texts.require_same_length(titles, text_file, matrix.shape[0], matrices[name])
        if matrix.shape[1] != len(labels):
            raise DataError(
                f"{matrix.shape[1]} columns, but raw/Y.txt has {len(labels)} labels",
                path=matrices[name],
            )
        filters = shared.read_filters(path, name, matrix.shape)
        splits[name] = Split(titles, matrix, filters=filters)
    return shared.finish(path, labels, splits)


def write(dataset: Dataset, folder: Path) -> None:
    """Write raw texts and matrices, with filters and dataset.json."""
    (folder / RAW).mkdir()
    for name, split in dataset.splits.items():
        stem = _stem(folder / FILES[name][0])
        texts.write_query_texts(folder / RAW / f"{stem}_X.txt", split)
        sp.save_npz(folder / FILES[name][0], split.targets)
    texts.write_label_texts(folder / RAW / LABELS[0], dataset.labels)
    shared.write_shared(dataset, folder)


def files(path: Path) -> dict[str, Path]:
    """Return the text file of each split; row i of a split is line i + 1 of its file."""
    return {
        name: shared.require_one(path / RAW, (f"{_stem(file)}_X.txt",), "the texts of the queries")
        for name, file in _matrix_files(path).items()
    }


def _matrix_files(path: Path) -> dict[str, Path]:
    if not path.is_dir():
        raise DataError("expected a folder with Y.trn.npz and raw/trn_X.txt", path=path)
    return shared.find_splits(path, FILES)


def _stem(matrix_file: Path) -> str:
    return matrix_file.name.split(".")[1]


def _read_matrix(path: Path) -> sp.csr_matrix:
    with open_bytes(path) as stream:
        content = io.BytesIO(stream.read())
    try:
        with zipfile.ZipFile(content) as archive:
            check_fits(path, sum(member.file_size for member in archive.infolist()))
        loaded = sp.load_npz(content)
        if loaded.format not in ("csr", "csc", "coo"):
            raise ValueError(f"it is in {loaded.format} form; use csr, csc or coo")
        if loaded.format != "coo":
            # Compiled code trusts these arrays; a damaged archive must not reach it unchecked.
            shape = loaded.shape if loaded.format == "csr" else loaded.shape[::-1]
            checked_csr(loaded.data, loaded.indices, loaded.indptr, shape)
        if loaded.dtype.kind not in "biuf":
            raise ValueError(f"it holds {loaded.dtype}; expected numbers")
        matrix = sp.csr_matrix(loaded)
        if matrix.nnz != loaded.nnz:
            raise ValueError("it holds a pair of query and label twice")
    except DataError:
        raise
    except Exception as error:
        # What a damaged archive raises depends on where the damage is; all of it means the same.
        raise DataError(
            f"the file is not a sparse matrix that SciPy can read without pickle ({error}); "
            "write it with scipy.sparse.save_npz",
            path=path,
        ) from error
    matrix.sort_indices()
    # Before any change of type: SciPy adds up what is there twice when it converts.
    row = first_repeat(matrix)
    if row >= 0:
        raise DataError("a label is there twice; name every label once", path=path, row=row + 1)
    return _check(matrix.astype(np.float32), path)


def _check(matrix: sp.csr_matrix, path: Path) -> sp.csr_matrix:
    matrix.eliminate_zeros()
    if not matrix.nnz:
        raise DataError("no row has any label; at least one positive is needed", path=path)
    wrong = np.flatnonzero(~((matrix.data > 0) & (matrix.data <= 1)))
    if len(wrong):
        row = int(np.searchsorted(matrix.indptr, wrong[0], side="right"))
        raise DataError(
            f"relevance {matrix.data[wrong[0]]:g} is not in (0, 1]; divide by the largest",
            path=path,
            row=row,
        )
    return matrix

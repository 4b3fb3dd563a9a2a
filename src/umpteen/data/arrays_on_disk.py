"""One-dimensional .npy files that grow while they are written and are checked when opened."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from umpteen.errors import DataError
from umpteen.files import LOAD_ERRORS, digest


class ArrayWriter:
    """Append to a flat .npy file whose length is not known beforehand.

    NumPy pads the header so that the length fits in later; we write it last. ``about`` then holds
    what ``open_array`` checks.
    """

    def __init__(self, path: Path, dtype: np.dtype[Any]) -> None:
        self.about: dict[str, Any] = {}
        self._path = path
        self._dtype = dtype
        self._length = 0
        self._handle: BinaryIO = open(path, "wb")  # noqa: SIM115 - closed by __exit__
        self._header()

    def append(self, values: NDArray[Any]) -> None:
        """Write values at the end; they must have the file's dtype."""
        if values.dtype != self._dtype:
            raise TypeError(f"expected {self._dtype}, got {values.dtype}")
        self._handle.write(np.ascontiguousarray(values).data)
        self._length += len(values)

    def __enter__(self) -> ArrayWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._handle.seek(0)
        self._header()
        self._handle.close()
        if error is None:
            self.about = {"length": self._length, "sha256": digest(self._path)}

    def _header(self) -> None:
        fields = {"descr": npy.dtype_to_descr(self._dtype), "fortran_order": False}
        npy.write_array_header_1_0(self._handle, {**fields, "shape": (self._length,)})


def open_array(path: Path, about: Any) -> NDArray[Any]:
    """Map a file written by ``ArrayWriter``.

    Args:
        path: The file.
        about: What the writer's ``about`` was.

    Returns:
        A read-only memory map (a plain array if it is empty).

    Raises:
        DataError: If the file is missing or any byte differs.
    """
    try:
        if not isinstance(about, dict) or digest(path) != about.get("sha256"):
            raise DataError("the file is not what was written; it is damaged", path=path)
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except LOAD_ERRORS as cause:
        raise DataError(f"cannot be read: {cause}", path=path) from cause
    if array.shape != (about.get("length"),):
        raise DataError(f"expected {about.get('length')} values, got {array.shape}", path=path)
    return array

"""Run the code cells of a notebook in this process and store their outputs in it.

    python tools/run_notebook.py docs/guide/quickstart.ipynb

The last expression of a cell is shown as in Jupyter: HTML where it has it, else its repr. Open
matplotlib figures are shown as PNG. Needs no kernel.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any


def run_notebook(notebook: dict[str, Any]) -> dict[str, Any]:
    """Run all cells in order; return the names they defined.

    Args:
        notebook: The parsed file. The outputs of its cells are replaced.

    Returns:
        Name to value.
    """
    names: dict[str, Any] = {"__name__": "__main__"}
    number = 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            number += 1
            cell["execution_count"] = number
            cell["outputs"] = run_cell("".join(cell["source"]), names, number)
    return names


def run_cell(source: str, names: dict[str, Any], number: int) -> list[dict[str, Any]]:
    """Run one cell and return its outputs."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    shown = None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, f"<cell {number}>", "exec"), names)
        if last is not None:
            expression = ast.Expression(last.value)  # type: ignore[attr-defined]
            shown = eval(compile(expression, f"<cell {number}>", "eval"), names)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        lines = printed.getvalue().splitlines(keepends=True)
        outputs.append({"name": "stdout", "output_type": "stream", "text": lines})
    outputs += figures()
    if shown is not None:
        outputs.append(
            {"data": bundle(shown), "execution_count": number, "metadata": {},
             "output_type": "execute_result"}
        )  # fmt: skip
    return outputs


def bundle(value: Any) -> dict[str, Any]:
    """Return a value as text and, where it has it, HTML."""
    data = {"text/plain": repr(value).splitlines(keepends=True)}
    html = getattr(value, "_repr_html_", None)
    if callable(html):
        data["text/html"] = html().splitlines(keepends=True)
    return data


def figures() -> list[dict[str, Any]]:
    """Return the open figures of matplotlib as PNG and close them."""
    if "matplotlib.pyplot" not in sys.modules:
        return []
    pyplot = sys.modules["matplotlib.pyplot"]
    outputs = []
    for number in pyplot.get_fignums():
        image = io.BytesIO()
        pyplot.figure(number).savefig(image, format="png", dpi=72, metadata={"Software": None})
        encoded = base64.b64encode(image.getvalue()).decode("ascii")
        data = {"image/png": encoded, "text/plain": ["<Figure>"]}
        outputs.append({"data": data, "metadata": {}, "output_type": "display_data"})
    pyplot.close("all")
    return outputs


def main() -> int:
    """Run a notebook in an empty folder and write its outputs back."""
    path = Path(sys.argv[1]).resolve()
    os.environ.setdefault("MPLBACKEND", "Agg")
    notebook = json.loads(path.read_text("utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        run_notebook(notebook)
        os.chdir(path.parent)
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Execute the notebooks of the gallery and store their outputs: `make gallery`.

`python docs/gallery/execute.py marketplace audit` executes two of them. Executed again
without a change, with the same versions, a notebook is the same file to the byte: nothing
in it depends on the time or on the machine.
"""

from __future__ import annotations

import base64
import io
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from PIL import Image

FOLDER = Path(__file__).parent
THUMBNAILS = FOLDER / "thumbnails"
THUMBNAIL_SIZE = 320, 240
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def execute(path: Path) -> Any:
    """Run a notebook in a new kernel and an empty folder; return it with its outputs."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        options = {
            "record_timing": False,
            "coalesce_streams": True,
            "resources": resources,
        }
        NotebookClient(notebook, timeout=600, kernel_name="python3", **options).execute()
    notebook.metadata = nbformat.from_dict(METADATA)
    for number, cell in enumerate(notebook.cells, start=1):
        cell.id = f"cell-{number}"
        if cell.cell_type == "code":
            cell.outputs = [stored(output) for output in cell.outputs]
    return notebook


def stored(output: Any) -> Any:
    """Return an output as it is stored: of a figure nothing but a small picture."""
    if "image/png" not in output.get("data", {}):
        return output
    png = small_png(base64.b64decode(output.data["image/png"]))
    return nbformat.v4.new_output(
        "display_data", {"image/png": base64.b64encode(png).decode()}
    )


def small_png(png: bytes, size: tuple[int, int] | None = None) -> bytes:
    """Return a picture with few colours, without metadata, and shrunk to a size."""
    picture = Image.open(io.BytesIO(png)).convert("RGB")
    if size is not None:
        picture.thumbnail(size, Image.Resampling.LANCZOS)
    target = io.BytesIO()
    picture.quantize(64, dither=Image.Dither.NONE).save(target, "PNG", optimize=True)
    return target.getvalue()


def pictures(notebook: Any) -> list[bytes]:
    """Return the stored figures of a notebook."""
    outputs = [
        output
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
    ]
    return [
        base64.b64decode(each.data["image/png"])
        for each in outputs
        if "image/png" in each.get("data", {})
    ]


def main() -> None:
    """Execute the notebooks named, or all; the first figure of each is its thumbnail."""
    THUMBNAILS.mkdir(exist_ok=True)
    chosen = [FOLDER / f"{name}.ipynb" for name in sys.argv[1:]] or sorted(
        FOLDER.glob("*.ipynb")
    )
    for path in chosen:
        notebook = execute(path)
        nbformat.validate(notebook)
        nbformat.write(notebook, path)
        (THUMBNAILS / f"{path.stem}.png").write_bytes(
            small_png(pictures(notebook)[0], THUMBNAIL_SIZE)
        )
        print(f"{path.name}: {path.stat().st_size:,} bytes", flush=True)


if __name__ == "__main__":
    main()

"""Run the notebooks of docs/, and store their outputs in them.

python -m scripts.release.run_notebooks
python -m scripts.release.run_notebooks docs/paper.ipynb

It needs `pip install nbclient ipykernel`. GitHub shows what is stored. By a
checksum of the code, a test checks that the outputs are those of the cells.
"""

import argparse
import base64
import hashlib
import io
import pathlib
import tempfile

DOCS = pathlib.Path(__file__).parents[2] / "docs"


def code(notebook: dict) -> list[str]:
    """Return the code of each cell that has code."""
    cells = notebook["cells"]
    return ["".join(c["source"]) for c in cells if c["cell_type"] == "code"]


def code_sha256(notebook: dict) -> str:
    """Return the checksum of the code of all cells."""
    return hashlib.sha256("\n\n".join(code(notebook)).encode()).hexdigest()


def shrink_pictures(notebook: dict) -> None:
    """Reduce the pictures of a notebook to 64 colors, a quarter of the size."""
    from PIL import Image

    for cell in notebook["cells"]:
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if png := data.get("image/png"):
                picture = Image.open(io.BytesIO(base64.b64decode(png)))
                file = io.BytesIO()
                rare = Image.Quantize.MAXCOVERAGE  # keeps rare colors
                picture.convert("RGB").quantize(64, rare).save(file, "PNG")
                encoded = base64.b64encode(file.getvalue())
                data["image/png"] = encoded.decode()


def run(path: pathlib.Path) -> None:
    """Run a notebook in an empty folder, and store it with its outputs."""
    import nbclient
    import nbformat

    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        nbclient.NotebookClient(
            notebook,
            resources={"metadata": {"path": folder}},
            record_timing=False,
            coalesce_streams=True,
        ).execute()
    shrink_pictures(notebook)
    notebook.metadata = {
        "code_sha256": code_sha256(notebook),
        "kernelspec": notebook.metadata["kernelspec"],
        "language_info": {"name": "python"},
    }
    nbformat.write(notebook, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "notebooks",
        nargs="*",
        type=pathlib.Path,
        default=sorted(DOCS.glob("*.ipynb")),
        help="The notebooks to run; without any, all of docs/.",
    )
    for path in parser.parse_args().notebooks:
        run(path)
        print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()

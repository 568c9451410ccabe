"""Move the centroids to the means of their points, and say whether another iteration is needed.

    update.py CENTROIDS HISTORY SUMS... --iterations N --tolerance T

Writes centroids.npy, history.tsv (a row more) and cwl.output.json, which names them and says in `more` whether another
iteration is needed: there were fewer than N, and some centroid moved by more than T.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


def move(centroids: NDArray[np.float64], sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the means of the points; a centroid without points stays where it is."""
    counts = sums[:, :1]
    return np.where(counts > 0, sums[:, 2:] / np.maximum(counts, 1), centroids)


def main() -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(description="Move the centroids to the means of their points.")
    parser.add_argument("centroids", type=Path)
    parser.add_argument("history", type=Path)
    parser.add_argument("sums", type=Path, nargs="+", metavar="SUMS")
    parser.add_argument("--iterations", type=int, required=True)
    parser.add_argument("--tolerance", type=float, required=True)
    options = parser.parse_args()
    try:
        history = options.history.read_text()
        old = np.load(options.centroids)
        sums = np.sum([np.load(path) for path in options.sums], axis=0)
    except (OSError, ValueError) as error:
        print(f"update.py: {error}", file=sys.stderr)
        return 1
    new = move(old, sums)
    shift = float(np.sqrt(((new - old) ** 2).sum(axis=1)).max())
    iteration = len(history.splitlines())  # the header is one of the lines
    np.save("centroids.npy", new)
    Path("history.tsv").write_text(f"{history}{iteration}\t{sums[:, 1].sum():.9g}\t{shift:.6g}\n")
    output = {
        "moved": {"class": "File", "path": "centroids.npy"},
        "longer": {"class": "File", "path": "history.tsv"},
        "more": iteration < options.iterations and shift > options.tolerance,
    }
    Path("cwl.output.json").write_text(json.dumps(output))
    return 0


if __name__ == "__main__":
    sys.exit(main())

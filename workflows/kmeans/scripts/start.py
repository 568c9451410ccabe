"""Choose the first centroids among the points of some fragments, far from each other.

    start.py CENTROIDS HISTORY --clusters K --seed N FRAGMENT...

Every FRAGMENT gives 1,000 of its points to choose from. HISTORY becomes a table without rows.
The method is k-means++ (Arthur and Vassilvitskii, 2007).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

SAMPLE = 1000
HISTORY_HEADER = "#iteration\tinertia\tshift\n"


def choose(points: NDArray[np.float64], clusters: int, random: np.random.Generator) -> NDArray[np.float64]:
    """Return points, each drawn with a probability proportional to its squared distance from those drawn before.

    Raises:
        ValueError: there are fewer different points than clusters.
    """
    centroids = [points[random.integers(len(points))]]
    distances = np.full(len(points), np.inf)
    while len(centroids) < clusters:
        distances = np.minimum(distances, ((points - centroids[-1]) ** 2).sum(axis=1))
        if not distances.any():
            raise ValueError(f"fewer than {clusters} different points in the sample")
        centroids.append(points[random.choice(len(points), p=distances / distances.sum())])
    return np.array(centroids)


def sample(fragment: Path, random: np.random.Generator) -> NDArray[np.float64]:
    """Return some points of a fragment.

    Raises:
        ValueError: it holds no table of numbers, or no points.
    """
    points = np.load(fragment, mmap_mode="r")
    if points.ndim != 2 or not len(points):
        raise ValueError(f"{fragment}: not a table of points, but of the shape {points.shape}")
    chosen = np.sort(random.choice(len(points), min(SAMPLE, len(points)), replace=False))
    return np.asarray(points[chosen], dtype=np.float64)


def main() -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(description="Choose the first centroids.")
    parser.add_argument("centroids", type=Path)
    parser.add_argument("history", type=Path)
    parser.add_argument("fragments", type=Path, nargs="+", metavar="FRAGMENT")
    parser.add_argument("--clusters", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    options = parser.parse_args()
    if options.clusters < 1 or options.seed < 0:
        parser.error("--clusters: at least 1; --seed: at least 0")
    random = np.random.default_rng(options.seed)
    try:
        points = np.concatenate([sample(fragment, random) for fragment in options.fragments])
        np.save(options.centroids, choose(points, options.clusters, random))
    except (OSError, ValueError) as error:
        print(f"start.py: {error}", file=sys.stderr)
        return 1
    options.history.write_text(HISTORY_HEADER)
    return 0


if __name__ == "__main__":
    sys.exit(main())

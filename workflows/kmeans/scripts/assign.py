"""Assign the points of a fragment to their nearest centroids.

    assign.py FRAGMENT CENTROIDS SUMS LABELS

SUMS gets a row per centroid: how many points it has, the sum of their squared distances, the sums of their coordinates.
LABELS gets the number of the centroid of each point.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

BLOCK = 8192  # points at a time, so that the distances stay in the cache


def nearest(
    points: NDArray[np.float64], centroids: NDArray[np.float64]
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Return for each point the number of its centroid (of equals the first), and the squared distance from it."""
    # |p - c|^2 = |p|^2 - 2 p.c + |c|^2; |p|^2 is the same for all centroids.
    partial = (centroids**2).sum(axis=1) - 2 * points @ centroids.T
    labels = partial.argmin(axis=1).astype(np.int32)
    return labels, ((points - centroids[labels]) ** 2).sum(axis=1)


def assign(
    points: NDArray[np.floating], centroids: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    """Return the sums and the labels of a fragment.

    Raises:
        ValueError: points and centroids differ in their dimensions.
    """
    if points.ndim != 2 or points.shape[1] != centroids.shape[1]:
        raise ValueError(f"points of the shape {points.shape}, centroids of the shape {centroids.shape}")
    sums = np.zeros((len(centroids), 2 + centroids.shape[1]))
    labels = np.empty(len(points), dtype=np.int32)
    for start in range(0, len(points), BLOCK):
        block = np.asarray(points[start : start + BLOCK], dtype=np.float64)
        found, distances = nearest(block, centroids)
        labels[start : start + BLOCK] = found
        for column, weights in enumerate((None, distances, *block.T)):
            sums[:, column] += np.bincount(found, weights, len(centroids))
    return sums, labels


def main() -> int:
    """Run the command line; return the exit code."""
    if len(sys.argv) != 5:
        print("usage: assign.py FRAGMENT CENTROIDS SUMS LABELS", file=sys.stderr)
        return 1
    fragment, centroids, sums_file, labels_file = map(Path, sys.argv[1:])
    try:
        sums, labels = assign(np.load(fragment, mmap_mode="r"), np.load(centroids))
    except (OSError, ValueError) as error:
        print(f"assign.py: {fragment}: {error}", file=sys.stderr)
        return 1
    np.save(sums_file, sums)
    np.save(labels_file, labels)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Count the words of the Python standard library, each replica its share.

    zcoll run -n 4 examples/wordcount.py

Each replica counts the words of some of the files into a ``Counter``, an
allreduce adds the counters up, and every replica has the total. Rank 0 then
counts everything by itself and compares. The exit status is 0 when both counts
are the same, and 1 when they differ.
"""

from __future__ import annotations

import re
import sys
import sysconfig
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import zcoll

if TYPE_CHECKING:
    from collections.abc import Iterable

LIBRARY = Path(sysconfig.get_path("stdlib"))
NOT_ITS_OWN = {"site-packages", "dist-packages", "test", "tests"}
WORD = re.compile(r"[^\W\d]\w*")


def library_sources() -> list[Path]:
    """List the library's own sources, the largest first."""
    sources = [
        path
        for path in LIBRARY.rglob("*.py")
        if NOT_ITS_OWN.isdisjoint(path.relative_to(LIBRARY).parts)
    ]
    return sorted(sources, key=lambda path: (-path.stat().st_size, path))


def count_words(paths: Iterable[Path]) -> Counter[str]:
    """Count the words of some files."""
    words: Counter[str] = Counter()
    for path in paths:
        words.update(WORD.findall(path.read_text(encoding="utf-8", errors="replace")))
    return words


def describe(words: Counter[str], files: int, num_replicas: int) -> str:
    """Say in two lines what was counted."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    top = ", ".join(f"{word} {count:,}" for word, count in words.most_common(5))
    return (
        f"{num_replicas} replica{'s' if num_replicas != 1 else ''} counted"
        f" {sum(words.values()):,} words ({len(words):,} different)"
        f" in {files:,} files of Python {version}\n"
        f"most common: {top}"
    )


def main() -> int:
    """Count together, then compare with a count by one process."""
    with zcoll.connect() as comm:
        rank, num_replicas = comm.replica_rank, comm.num_replicas

        # Rank 0 decides what there is to count, so nobody counts other files.
        paths = comm.broadcast(library_sources() if rank == 0 else [])

        comm.barrier()
        start = time.perf_counter()
        # The list is sorted by size: dealing it out gives shares of equal weight.
        words = comm.allreduce(count_words(paths[rank::num_replicas]))
        together = time.perf_counter() - start

        same = True
        if rank == 0:
            start = time.perf_counter()
            same = count_words(paths) == words
            alone = time.perf_counter() - start
            print(describe(words, len(paths), num_replicas))
            print(
                f"one process counts {'the same' if same else 'something else'}"
                f" ({alone:.2f} s alone, {together:.2f} s together)"
            )
        # Only rank 0 compared; its verdict is everybody's exit status.
        return 0 if comm.broadcast(same) else 1


if __name__ == "__main__":
    sys.exit(main())

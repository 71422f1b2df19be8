"""A program of its own: passes on what it reads, line by line, and says which lines matter.

It stands between a worker and its standard error, as a process and not as a thread, so that the
last words of a worker that crashes come through. It runs without site-packages, so it is small.

    relay.py DROPPED HEARD      two patterns; standard input to standard error, HEARD to output too
"""

from __future__ import annotations

import re
import sys
from contextlib import suppress
from typing import BinaryIO


def relay(source: BinaryIO, target: BinaryIO, news: BinaryIO, dropped: bytes, heard: bytes) -> None:
    """Returns at the end of `source`, and reads on where nobody takes what it says."""
    drop, hear = re.compile(dropped), re.compile(heard)
    for line in iter(source.readline, b""):
        if drop.match(line):
            continue
        with suppress(OSError):
            target.write(line)
            target.flush()
        if hear.search(line):
            with suppress(OSError):
                news.write(line)
                news.flush()


if __name__ == "__main__":
    words = [word.encode() for word in sys.argv[1:]]
    relay(sys.stdin.buffer, sys.stderr.buffer, sys.stdout.buffer, words[0], words[1])

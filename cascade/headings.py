"""The headings above a place in a markdown text."""

import re
from bisect import bisect_right
from dataclasses import dataclass

_LINE = re.compile(r"^(?:(?P<fence>```|~~~)|(?P<marks>#{1,6})[ \t]+(?P<title>.+?)[ \t]*#*[ \t]*$)", re.MULTILINE)


@dataclass(frozen=True)
class Headings:
    """Where each heading starts, and the path of headings that holds from there."""

    starts: tuple[int, ...]
    paths: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, markdown: str) -> "Headings":
        """Headings outside of fenced code."""
        starts, paths = [], []
        path: dict[int, str] = {}
        fenced = False
        for line in _LINE.finditer(markdown):
            if line["fence"]:
                fenced = not fenced
            elif not fenced:
                level = len(line["marks"])
                path = {above: title for above, title in path.items() if above < level} | {level: line["title"]}
                starts.append(line.start())
                paths.append(tuple(path.values()))
        return cls(tuple(starts), tuple(paths))

    def at(self, place: int) -> tuple[str, ...]:
        """Headings, the widest first, that the character at `place` stands under."""
        index = bisect_right(self.starts, place) - 1
        return self.paths[index] if index >= 0 else ()

"""What every parser gives."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Extract:
    """Text, the title the file itself states ("" if none) and the offsets in `text` at which its pages begin."""

    text: str
    title: str = ""
    page_starts: tuple[int, ...] = ()

    @classmethod
    def of_pages(cls, pages: list[str], title: str = "") -> "Extract":
        """Pages joined by blank lines; an empty page still counts."""
        text, starts = "", []
        for page in pages:
            starts.append(len(text))
            text += f"{page}\n\n" if page else ""
        return cls(text, title, tuple(starts))

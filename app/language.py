"""What the main model's folder gives before any engine runs: tokenizer, prompts, ingest scheme, fingerprint."""

from dataclasses import dataclass
from pathlib import Path

from app.prompt import PromptBuilder
from cascade.tokenize import PlainTokenizer
from fuse.fingerprint import fingerprint_model
from fuse.scheme import IngestScheme

GENERIC_PASSAGES = (
    "A good workshop is arranged so that the tools used most often lie closest to the bench. Larger machines stand "
    "along the walls with enough space around them to turn a long board. Light should come from the left for most "
    "people, and the floor should be swept at the end of every day. Glue, paint and varnish are stored in a closed "
    "cabinet away from heat. Before starting a new piece it helps to draw it at full size, to list the parts, and to "
    "cut everything a little longer than the drawing says, since wood can be shortened but never lengthened.\n\n",
    "The ferry leaves the northern pier every morning except on holidays. Passengers buy their tickets at the small "
    "office beside the gate, where timetables and maps are also kept. The crossing takes about forty minutes in fair "
    "weather and somewhat longer when the wind is from the west. On the other side a road follows the shore for a few "
    "miles before it turns inland and climbs through orchards to the old town. Most of the houses there were built of "
    "local stone, and many of them still have the wide doors through which carts once passed.\n\n",
)
"""Plain prose that passages are computed behind. Part of every fingerprint: a change makes all stored chunks stale."""


@dataclass(frozen=True)
class Language:
    """`scheme`: how passages are ingested; `fingerprint`: digest that every chunk of this model is stored under."""

    model: Path
    plain: PlainTokenizer
    prompts: PromptBuilder
    scheme: IngestScheme
    fingerprint: str

    @classmethod
    def load(cls, model: Path, dtype: str, passes: int = 2, cache_dir: Path | None = None) -> "Language":
        """Read the folder and hash its weights, a second per few GB unless `cache_dir` remembers their hashes.

        `passes`: prefills of one passage at ingest.

        Raises:
            FileNotFoundError, TokenizerError: the folder is no model, or has no fast tokenizer.
        """
        plain = PlainTokenizer.from_folder(model)
        prompts = PromptBuilder(model, plain)
        first, second = (tuple(plain.encode(text)) for text in GENERIC_PASSAGES)
        scheme = IngestScheme(prompts.ingest_head(), (first, second), passes)
        fingerprint = fingerprint_model(model, dtype, dtype, scheme.describe(), cache_dir=cache_dir).digest()
        return cls(model, plain, prompts, scheme, fingerprint)

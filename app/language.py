"""What the main model's folder gives before any engine runs: tokenizer, prompts, ingest head, fingerprint."""

from dataclasses import dataclass
from pathlib import Path

from app.prompt import PromptBuilder
from cascade.tokenize import PlainTokenizer
from fuse.fingerprint import fingerprint_model


@dataclass(frozen=True)
class Language:
    """`head`: token ids of the ingest head; `fingerprint`: digest that every chunk of this model is stored under."""

    model: Path
    plain: PlainTokenizer
    prompts: PromptBuilder
    head: tuple[int, ...]
    fingerprint: str

    @classmethod
    def load(cls, model: Path, dtype: str) -> "Language":
        """Read the folder; hashes its weights, a second per few GB.

        Raises:
            FileNotFoundError, TokenizerError: the folder is no model, or has no fast tokenizer.
        """
        plain = PlainTokenizer.from_folder(model)
        prompts = PromptBuilder(model, plain)
        head = prompts.ingest_head()
        return cls(model, plain, prompts, head, fingerprint_model(model, dtype, dtype, head).digest())

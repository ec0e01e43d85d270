"""Plain text to the main model's token ids."""

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from tokenizers import Tokenizer

from cascade.errors import TokenizerError


class PlainTokenizer:
    """Encodes document text so that nothing in it is ever read as a control token.

    `<|im_end|>` written in a document becomes the tokens of its characters. Safe to use from several threads.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._own = tokenizer
        self._tokenizer = Tokenizer.from_str(_all_special(tokenizer.to_str()))
        self._tokenizer.encode_special_tokens = True
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    @classmethod
    def from_folder(cls, model: Path) -> "PlainTokenizer":
        """Use the fast tokenizer of a transformers model folder; TokenizerError if it has none."""
        file = model / "tokenizer.json"
        if not file.is_file():
            raise TokenizerError(f"{model} has no tokenizer.json (a model with a fast tokenizer is needed)")
        return cls(Tokenizer.from_file(str(file)))

    @cached_property
    def control_ids(self) -> frozenset[int]:
        """The ids that `encode` never emits."""
        return frozenset(id for id, token in self._tokenizer.get_added_tokens_decoder().items() if token.special)

    def encode(self, text: str) -> list[int]:
        """Token ids of `text` alone: no start token, no end token, no control token."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        if not self.control_ids.isdisjoint(ids):  # a vocabulary that reaches them through its ordinary pieces
            raise TokenizerError(f"plain text was encoded as control tokens {sorted(self.control_ids & set(ids))}")
        return ids

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of the model's own output, without control tokens."""
        text: str = self._own.decode(list(token_ids), skip_special_tokens=True)
        return text

    def count(self, text: str) -> int:
        """How many tokens `text` has."""
        return len(self.encode(text))

    def clip(self, text: str, limit: int) -> str:
        """The longest beginning of `text` that has at most `limit` tokens."""
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        if len(encoding.ids) <= limit:
            return text
        return text[: encoding.offsets[limit][0]]


def _all_special(tokenizer_json: str) -> str:
    """Mark every added token special: only those can be switched off, and models also add `<think>` and the like.

    Runs of spaces, which some vocabularies add, stay as they are: they are text.
    """
    spec = json.loads(tokenizer_json)
    for token in spec.get("added_tokens", []):
        token["special"] = token["special"] or bool(token["content"].strip())
    return json.dumps(spec)

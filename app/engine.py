"""Engine: what the rest of the application asks of a language model, wherever it runs."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Protocol

from app.engine_values import Generated, Sampling, Saved
from fuse.plan import FusePlan
from fuse.scheme import SaveStep


class Engine(Protocol):
    """`start` before anything else; then every method may be called concurrently. All raise `EngineError`."""

    @property
    def fusable(self) -> bool:
        """Whether plans are of use."""
        ...

    @property
    def refusal(self) -> str:
        """Why plans are of no use; empty when they are."""
        ...

    @property
    def max_model_len(self) -> int:
        """Most tokens of a prompt and its answer together."""
        ...

    async def start(self) -> None:
        """Get the model ready: seconds to minutes."""

    async def stop(self) -> None:
        """Let go of the model; requests under way end in an error."""

    async def alive(self) -> bool:
        """Whether the model's workers answer."""
        ...

    def refuse(self, reason: str) -> None:
        """Serve without fusion from now on."""

    async def describe(self) -> list[dict[str, Any]]:
        """Return what there is to know about each engine behind this one, JSON-ready."""
        ...

    async def store_stats(self) -> Mapping[str, Mapping[str, Any]]:
        """Return each engine's view of the store by the engine's name, as `StoreStats` fields."""
        ...

    def generate(
        self, token_ids: Sequence[int], sampling: Sampling, plan: FusePlan | None = None, salt: str | None = None
    ) -> AsyncIterator[Generated]:
        """Stream the continuation of `token_ids`, fused as `plan` says; a plan needs a `salt`.

        Closing the iterator aborts the request.
        """
        ...

    async def log_likelihood(
        self, before: Sequence[int], token_ids: Sequence[int], plan: FusePlan | None = None
    ) -> float:
        """Log-probability of `token_ids` after the tokens `before`, whose first part is fused as `plan` says.

        At least one token of `before` must be left to compute: its output predicts the next.
        """
        ...

    async def save(self, steps: Sequence[SaveStep]) -> Saved:
        """Prefill one passage as `steps` say, one after the other; returns when its chunk is stored."""
        ...

"""Log-likelihood of given tokens, by vLLM's engine client."""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from vllm import SamplingParams
from vllm.inputs import TokensPrompt


async def log_likelihood(
    client: Any, before: Sequence[int], token_ids: Sequence[int], transfer: Mapping[str, Any] | None
) -> float:
    """Return the log-probability of `token_ids` after the tokens `before`, in nats.

    `transfer` is the plan's `kv_transfer_params`. At least one token of `before` must be left to compute: its output
    predicts the next.
    """
    params = SamplingParams(
        max_tokens=1,
        temperature=0.0,
        prompt_logprobs=0,
        detokenize=False,
        # vLLM would compute the whole prompt anew, as it has no log-probabilities of cached tokens. Nothing is cached
        # here that is asked about: no other request has this salt.
        skip_reading_prefix_cache=False,
        extra_args={"kv_transfer_params": dict(transfer)} if transfer else None,
    )
    salt = uuid.uuid4().hex
    prompt = TokensPrompt(prompt_token_ids=[*before, *token_ids], cache_salt=salt)
    logprobs: list[Mapping[int, Any] | None] = []
    async for output in client.generate(prompt, params, f"kvfuse-{salt}"):
        logprobs = logprobs or list(output.prompt_logprobs or ())
    found = zip(token_ids, logprobs[len(before) :], strict=True)
    return float(sum(entry[token].logprob for token, entry in found if entry is not None))

"""Engine: one vLLM `AsyncLLM` in this process's event loop, with the fusion connector bound to its model."""

import asyncio
import gc
import os
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from app.engine_values import EngineConfig, EngineError, Generated, Sampling, Saved
from fuse.plan import FusePlan
from fuse.scheme import SaveStep
from store.keys import ChunkKey

if TYPE_CHECKING:
    from vllm import SamplingParams
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.outputs import RequestOutput
    from vllm.v1.engine.async_llm import AsyncLLM

_SAVE_POLL_S = 0.02
_SAVE_TIMEOUT_S = 60.0
_PING_TIMEOUT_S = 5.0


class Engine:
    """Owns the vLLM engine. `start` before anything else; then every method may be called concurrently."""

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self._llm: AsyncLLM | None = None
        self._saves: dict[ChunkKey, asyncio.Future[Saved]] = {}
        self._poller: asyncio.Task[None] | None = None
        self._requests = 0
        self.fusable = False
        self.refusal = "the engine has not started"
        self.max_model_len = 0

    async def start(self) -> None:
        """Load the model (seconds to minutes) and bind the connector to it."""
        await asyncio.to_thread(self._load)
        (bound, *_) = await self._rpc("kvfuse_bind")
        self.fusable, self.refusal = bound["fusable"], bound["reason"]

    def _load(self) -> None:
        self._llm = _make_llm(self._config)
        self.max_model_len = self._llm.model_config.max_model_len

    def refuse(self, reason: str) -> None:
        """Serve without fusion from now on."""
        self.fusable, self.refusal = False, reason

    async def stop(self) -> None:
        """Shut the engine down; requests under way end in an error."""
        if self._poller is not None:
            self._poller.cancel()
        for waiting in self._saves.values():
            waiting.cancel()
        if (llm := self._llm) is not None:
            self._llm = None
            if (handler := llm.output_handler) is not None:
                handler.cancel()  # first, or it reports the end of the engine as a failure
            await asyncio.to_thread(llm.shutdown)
            del llm
            gc.collect()  # vLLM's own `__del__` fails when it is left to the interpreter's shutdown

    async def alive(self) -> bool:
        """Whether the engine's workers answer."""
        try:
            await asyncio.wait_for(self._rpc("kvfuse_ping"), _PING_TIMEOUT_S)
        except Exception:
            return False
        return True

    async def store_stats(self) -> Mapping[str, Any]:
        """Return the worker's view of the store."""
        stats: Mapping[str, Any] = (await self._rpc("kvfuse_store_stats"))[0]
        return stats

    async def generate(
        self, token_ids: Sequence[int], sampling: Sampling, plan: FusePlan | None = None, salt: str | None = None
    ) -> AsyncIterator[Generated]:
        """Stream the continuation of `token_ids`, fused as `plan` says; a plan needs a `salt`.

        Closing the iterator aborts the request.
        """
        tag = uuid.uuid4().hex
        params = _sampling_params(sampling, plan.to_params(tag) if plan else None)
        async for output in self._outputs(token_ids, params, salt):
            ended = plan is not None and output.finished
            yield _generated(output, await self._report(tag) if ended else {})

    async def log_likelihood(
        self, before: Sequence[int], token_ids: Sequence[int], plan: FusePlan | None = None
    ) -> float:
        """Log-probability of `token_ids` after the tokens `before`, whose first part is fused as `plan` says.

        At least one token of `before` must be left to compute: its output predicts the next.
        """
        params = _sampling_params(Sampling(1), plan.to_params() if plan else None)
        params.prompt_logprobs, params.detokenize = 0, False
        # vLLM would compute the whole prompt anew, as it has no log-probabilities of cached tokens. Nothing is cached
        # here that is asked about: no other request has this salt.
        params.skip_reading_prefix_cache = False
        prompt_logprobs: list[Mapping[int, Any] | None] = []
        async for output in self._outputs([*before, *token_ids], params, uuid.uuid4().hex):
            prompt_logprobs = prompt_logprobs or list(output.prompt_logprobs or ())
        found = zip(token_ids, prompt_logprobs[len(before) :], strict=True)
        return float(sum(entry[token].logprob for token, entry in found if entry is not None))

    async def save(self, steps: Sequence[SaveStep]) -> Saved:
        """Prefill one passage as `steps` say, one after the other; returns when its chunk is stored.

        At most one save of a key may be under way at a time.

        Raises:
            EngineError: the chunk could not be stored.
        """
        order = steps[-1].order
        waiting = self._saves[order.key] = asyncio.get_running_loop().create_future()
        try:
            for step in steps:
                parameters = _sampling_params(Sampling(1), step.order.to_params())
                async for _ in self._outputs(step.token_ids, parameters, None):
                    pass
            if self._poller is None or self._poller.done():
                self._poller = asyncio.create_task(self._poll_saves())
            return await asyncio.wait_for(waiting, _SAVE_TIMEOUT_S)
        except TimeoutError:
            raise EngineError(f"chunk {order.key[:16]} was not stored within {_SAVE_TIMEOUT_S:.0f} s") from None
        finally:
            self._saves.pop(order.key, None)

    async def _report(self, tag: str) -> Mapping[str, Any]:
        report: Mapping[str, Any] = (await self._rpc("kvfuse_report", tag))[0]
        return report

    async def _outputs(
        self, token_ids: Sequence[int], params: "SamplingParams", salt: str | None
    ) -> AsyncIterator["RequestOutput"]:
        from vllm.inputs import TokensPrompt

        prompt = TokensPrompt(prompt_token_ids=list(token_ids))
        if salt is not None:
            prompt["cache_salt"] = salt
        self._requests += 1
        async for output in self._running().generate(prompt, params, f"kvfuse-{self._requests}"):
            yield output

    async def _poll_saves(self) -> None:
        while self._saves:
            try:
                (results, *_) = await self._rpc("kvfuse_saves")
            except Exception as error:
                for key in list(self._saves):
                    self._settle({"key": key, "error": f"the engine stopped answering ({error!r})"})
                return
            for result in results:
                self._settle(result)
            await asyncio.sleep(_SAVE_POLL_S)

    def _settle(self, result: Mapping[str, Any]) -> None:
        waiting = self._saves.get(result["key"])
        if waiting is None or waiting.done():
            return
        if result["error"]:
            waiting.set_exception(EngineError(f"chunk {result['key'][:16]} could not be stored: {result['error']}"))
        else:
            waiting.set_result(Saved(result["raw_bytes"], result["stored_bytes"]))

    async def _rpc(self, method: str, *arguments: str) -> list[Any]:
        results: list[Any] = await self._running().collective_rpc(method, args=arguments)
        return results

    def _running(self) -> "AsyncLLM":
        if self._llm is None:
            raise EngineError("the engine is not running")
        return self._llm


def _make_llm(config: EngineConfig) -> "AsyncLLM":
    arguments = engine_arguments(config)
    from vllm.v1.engine.async_llm import AsyncLLM

    return AsyncLLM.from_engine_args(arguments)


def engine_arguments(config: EngineConfig) -> "AsyncEngineArgs":
    """Return `config` as vLLM's own arguments; sets what vLLM reads from the environment when it is imported."""
    _set_environment(config)
    from vllm.config import KVTransferConfig
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.platforms import current_platform

    optional = {
        "max_num_batched_tokens": config.max_num_batched_tokens,
        "max_model_len": config.max_model_len,
        "num_gpu_blocks_override": config.num_gpu_blocks,
    }
    eager = current_platform.is_cpu() if config.enforce_eager is None else config.enforce_eager
    if eager:
        # vLLM's sampler compiles one small function even then, which takes 20 s when log-probabilities are first
        # asked for.
        os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
    return AsyncEngineArgs(
        model=str(config.model),
        dtype=config.dtype,
        max_num_seqs=config.max_num_seqs,
        max_logprobs=-1,
        enable_prefix_caching=True,
        enforce_eager=eager,
        kv_cache_memory_bytes=int(config.kv_cache_gib * 2**30),
        disable_log_stats=True,
        kv_transfer_config=KVTransferConfig(
            kv_connector="FuseConnector",
            kv_connector_module_path="fuse.connector.connector",
            kv_role="kv_both",
            kv_connector_extra_config=dict(config.connector),
        ),
        worker_extension_cls="fuse.connector.extension.FuseWorkerExtension",
        **{name: value for name, value in optional.items() if value is not None},
    )


def _set_environment(config: EngineConfig) -> None:
    """Set what vLLM reads from the environment when it is imported; what the operator has set stays."""
    defaults = {
        "VLLM_LOGGING_LEVEL": config.log_level.upper(),
        "VLLM_LOGGING_STREAM": "ext://sys.stderr",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    for name, value in defaults.items():
        os.environ.setdefault(name, value)


def _sampling_params(sampling: Sampling, transfer: Mapping[str, Any] | None) -> "SamplingParams":
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(
        max_tokens=sampling.max_tokens,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        seed=sampling.seed,
        stop=list(sampling.stop),
        logprobs=sampling.logprobs,
        output_kind=RequestOutputKind.DELTA,
        extra_args={"kv_transfer_params": dict(transfer)} if transfer else None,
    )


def _generated(output: "RequestOutput", report: Mapping[str, Any]) -> Generated:
    (completion,) = output.outputs
    logprobs = tuple(
        {token: entry.logprob for token, entry in position.items()} for position in completion.logprobs or ()
    )
    return Generated(
        text=completion.text,
        tokens=len(completion.token_ids),
        cached_tokens=output.num_cached_tokens or 0,
        finish_reason=completion.finish_reason,
        report=report,
        logprobs=logprobs,
    )

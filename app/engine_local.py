"""LocalEngine: one vLLM `AsyncLLM` in this process's event loop."""

import asyncio
import gc
import json
import os
import sys
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from app.engine_values import EngineConfig, EngineError, Generated, Sampling, Saved
from fuse.connector.channel import WorkerChannel
from fuse.plan import FusePlan
from fuse.scheme import SaveStep

if TYPE_CHECKING:
    from vllm import SamplingParams
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.outputs import RequestOutput
    from vllm.v1.engine.async_llm import AsyncLLM

_PING_TIMEOUT_S = 5.0

_SPINS = 10_000
"""How often OpenMP's threads look for more work before they sleep: enough to be there for a pass's next operation.

libgomp's own 300,000 (milliseconds) keep the cores from the loading threads and the engine core: over 2,063 tokens
`hybrid` 10 % then takes 0.26 to 0.27 s, with these 0.25 (2 cores).
"""


class _NotRunning:
    async def collective_rpc(self, method: str, *, args: tuple[Any, ...] = ()) -> list[Any]:
        raise EngineError("the engine is not running")


class LocalEngine:
    """Owns the vLLM engine. Implements `app.engine.Engine`."""

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self._llm: AsyncLLM | None = None
        self._workers = WorkerChannel(_NotRunning())
        self._requests = 0
        self.fusable = False
        self.refusal = "the engine has not started"
        self.max_model_len = 0

    async def start(self) -> None:
        await asyncio.to_thread(self._load)
        self._workers = WorkerChannel(self._running())
        self.fusable, self.refusal = await self._workers.verdict()

    def _load(self) -> None:
        self._llm = _make_llm(self._config)
        self.max_model_len = self._llm.model_config.max_model_len

    def refuse(self, reason: str) -> None:
        self.fusable, self.refusal = False, reason

    async def stop(self) -> None:
        if (llm := self._llm) is not None:
            self._llm = None
            self._workers.close()
            self._workers = WorkerChannel(_NotRunning())  # or the old one would keep the engine from being collected
            if (handler := llm.output_handler) is not None:
                handler.cancel()  # first, or it reports the end of the engine as a failure
            await asyncio.to_thread(llm.shutdown)
            del llm
            gc.collect()  # vLLM's own `__del__` fails when it is left to the interpreter's shutdown

    async def alive(self) -> bool:
        try:
            await asyncio.wait_for(self._workers.ping(), _PING_TIMEOUT_S)
        except Exception:
            return False
        return True

    async def describe(self) -> list[dict[str, Any]]:
        facts = {"fusable": self.fusable, "refusal": self.refusal, "max_model_len": self.max_model_len}
        return [{"engine": "in process", "answers": await self.alive(), **facts}]

    async def store_stats(self) -> Mapping[str, Mapping[str, Any]]:
        return {"engine": await self._workers.store_stats()}

    async def generate(
        self, token_ids: Sequence[int], sampling: Sampling, plan: FusePlan | None = None, salt: str | None = None
    ) -> AsyncIterator[Generated]:
        tag = uuid.uuid4().hex
        params = _sampling_params(sampling, plan.to_params(tag) if plan else None)
        async for output in self._outputs(token_ids, params, salt):
            ended = plan is not None and output.finished
            yield _generated(output, await self._workers.report(tag) if ended else {})

    async def log_likelihood(
        self, before: Sequence[int], token_ids: Sequence[int], plan: FusePlan | None = None
    ) -> float:
        from fuse.connector.likelihood import log_likelihood

        return await log_likelihood(self._running(), before, token_ids, plan.to_params() if plan else None)

    async def save(self, steps: Sequence[SaveStep]) -> Saved:
        tag = uuid.uuid4().hex
        for step in steps:
            parameters = _sampling_params(Sampling(1), step.order.to_params(tag))
            async for _ in self._outputs(step.token_ids, parameters, None):
                pass
        return await Saved.result(steps[-1].order.key, self._workers.saved(tag))

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

    arguments = _on_this_platform(config).to_vllm()
    transfer = KVTransferConfig(**arguments.pop("kv_transfer_config"))
    return AsyncEngineArgs(kv_transfer_config=transfer, disable_log_stats=True, **arguments)


def _on_this_platform(config: EngineConfig) -> EngineConfig:
    from vllm.platforms import current_platform

    cpu = current_platform.is_cpu()
    config = config.on(cpu)
    if cpu:
        os.environ.setdefault("GOMP_SPINCOUNT", str(_SPINS))
    if config.enforce_eager:
        # vLLM's sampler compiles one small function even then, which takes 20 s when log-probabilities are first
        # asked for.
        os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
    return config


def run_server(config: EngineConfig, options: Sequence[str], api_key: str = "") -> NoReturn:
    """Become a vLLM server of `config`; `options` are further ones of vLLM's command line.

    The key travels in the environment, where other users of the machine do not see it.
    """
    _set_environment(config)
    os.environ["VLLM_PLUGINS"] = ",".join(filter(None, (os.environ.get("VLLM_PLUGINS"), "kvfuse")))
    if api_key:
        os.environ["VLLM_API_KEY"] = api_key
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    command += server_options(_on_this_platform(config).to_vllm())
    command += ["--enable-prompt-tokens-details", *options]
    os.execv(sys.executable, command)


def server_options(arguments: Mapping[str, Any]) -> list[str]:
    """Write vLLM's arguments as its command line has them."""
    options = []
    for name, value in arguments.items():
        flag = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            options += [flag] if value else []
        else:
            options += [flag, json.dumps(value) if isinstance(value, Mapping) else str(value)]
    return options


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
        detokenize=sampling.logprobs != -1,  # the texts of a whole vocabulary take half a second
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
        token_ids=tuple(completion.token_ids),
        cached_tokens=output.num_cached_tokens or 0,
        finish_reason=completion.finish_reason,
        report=report,
        logprobs=logprobs,
    )

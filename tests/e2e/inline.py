"""A `LocalEngine` whose vLLM runs inside the calling process: started in seconds, so that many models can be examined.

Scheduler, worker, connector and model are vLLM's and ours as served; only the processes around them are missing. Steps
are taken by whoever waits for an output.
"""

import asyncio
import multiprocessing
import os
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from typing import Any, TypeVar

from app.engine_local import LocalEngine, engine_arguments
from app.engine_values import EngineConfig
from fuse.connector.staging import HostStaging

Result = TypeVar("Result")


def run_once(work: Callable[..., Result], *arguments: Any) -> Result:
    """Call `work` in a new process, as there is at most one engine a process."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("forkserver")) as processes:
        return processes.submit(work, *arguments).result()


class Beside(HostStaging):
    """Lets recomputes begin before their loads have ended, as on a device that computes beside the loading threads."""

    beside = True


class InlineEngine(LocalEngine):
    """At most one a process: vLLM keeps its distributed state in globals. `overrides`: further arguments of vLLM."""

    def __init__(self, config: EngineConfig, overrides: Mapping[str, Any]) -> None:
        super().__init__(config)
        self._overrides = overrides

    def _load(self) -> None:
        self.inline = _InlineLLM(self._config, self._overrides)
        llm: Any = self.inline
        self._llm = llm
        self.max_model_len = llm.model_config.max_model_len


class _InlineLLM:
    """The part of `AsyncLLM` that `LocalEngine` uses."""

    output_handler = None

    def __init__(self, config: EngineConfig, overrides: Mapping[str, Any]) -> None:
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        arguments = engine_arguments(config)
        for name, value in {"distributed_executor_backend": "uni", **overrides}.items():
            setattr(arguments, name, value)
        from vllm.v1.engine.llm_engine import LLMEngine

        self._llm = LLMEngine.from_engine_args(arguments)
        self._outputs: defaultdict[str, list[Any]] = defaultdict(list)
        self.model_config = self._llm.model_config
        self.scheduler = self._llm.engine_core.engine_core.scheduler

    def step(self) -> None:
        for output in self._llm.step():
            self._outputs[output.request_id].append(output)

    async def generate(self, prompt: Any, params: Any, request_id: str) -> AsyncIterator[Any]:
        self._llm.add_request(request_id, prompt, params)
        finished = False
        try:
            while not finished:
                self.step()
                for output in self._outputs.pop(request_id, ()):
                    finished = output.finished
                    yield output
                await asyncio.sleep(0)
        finally:
            if not finished:
                self._llm.abort_request([request_id])

    async def collective_rpc(self, method: str, *, args: tuple[Any, ...] = ()) -> list[Any]:
        self.step()  # saves are handed to the worker in the step after their request
        results: list[Any] = self._llm.collective_rpc(method, args=args)
        return results

    def shutdown(self) -> None:
        self._llm.engine_core.shutdown()

"""WorkerChannel: what the process with the engine's client asks of its workers, beside the requests."""

import asyncio
from collections.abc import Mapping
from typing import Any, Protocol

_SAVE_POLL_S = 0.02
_SAVE_TIMEOUT_S = 60.0


class RpcClient(Protocol):
    """The part of vLLM's engine client that reaches the workers."""

    async def collective_rpc(self, method: str, *, args: tuple[Any, ...] = ()) -> list[Any]:
        """Call `method` of every worker; the results by rank."""
        ...


class WorkerChannel:
    """Calls the `kvfuse_...` methods of `VllmWorker`. Every method may be called concurrently, from one event loop."""

    def __init__(self, client: RpcClient) -> None:
        self._client = client
        self._saves: dict[str, asyncio.Future[Mapping[str, Any]]] = {}
        self._poller: asyncio.Task[None] | None = None

    def close(self) -> None:
        """Cancel what is being waited for."""
        if self._poller is not None:
            self._poller.cancel()
        for waiting in self._saves.values():
            waiting.cancel()

    async def ping(self) -> None:
        """Return once every worker has answered."""
        await self._client.collective_rpc("kvfuse_ping")

    async def verdict(self) -> tuple[bool, str]:
        """Return whether every rank's model can be fused, and the first reason why not."""
        verdicts = await self._client.collective_rpc("kvfuse_verdict")
        reasons = [verdict["reason"] for verdict in verdicts if not verdict["fusable"]]
        return not reasons, reasons[0] if reasons else ""

    async def report(self, tag: str) -> Mapping[str, Any]:
        """Return the report of the fused request tagged `tag`, as `FuseReport` fields; empty if it was not fused."""
        reports: list[Mapping[str, Any]] = await self._client.collective_rpc("kvfuse_report", args=(tag,))
        return reports[0]

    async def store_stats(self) -> Mapping[str, Any]:
        """Return the first worker's view of the store, as `StoreStats` fields; empty when the model is refused."""
        stats: list[Mapping[str, Any]] = await self._client.collective_rpc("kvfuse_store_stats")
        return stats[0]

    async def saved(self, tag: str) -> Mapping[str, Any]:
        """Wait for the save tagged `tag`, whose request has ended; its `SaveResult` fields.

        Raises:
            TimeoutError: it has not ended within a minute.
            ConnectionError: the engine has stopped answering.
        """
        waiting = self._saves[tag] = asyncio.get_running_loop().create_future()
        if self._poller is None or self._poller.done():
            self._poller = asyncio.create_task(self._poll())
        try:
            return await asyncio.wait_for(waiting, _SAVE_TIMEOUT_S)
        finally:
            del self._saves[tag]

    async def _poll(self) -> None:
        """Ask for all the saves that are waited for at once, until none is."""
        while self._saves:
            try:
                ended = (await self._client.collective_rpc("kvfuse_saves", args=(list(self._saves),)))[0]
            except Exception as error:
                for waiting in self._saves.values():
                    if not waiting.done():
                        waiting.set_exception(ConnectionError(f"the engine stopped answering ({error!r})"))
                return
            for tag, result in ended.items():
                if (found := self._saves.get(tag)) is not None and not found.done():
                    found.set_result(result)
            await asyncio.sleep(_SAVE_POLL_S)

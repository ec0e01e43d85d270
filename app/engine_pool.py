"""EnginePool: several engines as one. Requests go where the least is running; what an engine drops another takes up."""

import asyncio
import logging
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from app.engine import Engine
from app.engine_remote import RemoteEngine
from app.engine_values import EngineDown, EngineError, Generated, Sampling, Saved
from app.errors import NotReady
from app.selfcheck import SelfCheck
from app.unfinished import Decode, Unfinished
from fuse.plan import FusePlan
from fuse.scheme import SaveStep

logger = logging.getLogger(__name__)

_WATCH_S = 2.0
_START_S = 1800.0

T = TypeVar("T")


@dataclass(eq=False)
class _Member:
    """usable: it has passed the gate and has answered ever since; otherwise `trouble` says why not.

    running: requests that it has. waits: the waits for its answers, to be ended if it is abandoned.
    """

    engine: RemoteEngine
    usable: bool = False
    wrong: bool = False
    trouble: str = "it has not answered yet"
    running: int = 0
    waits: set[asyncio.Timeout] = field(default_factory=set)

    def lost(self, error: EngineError) -> None:
        """Give it no more requests until it has passed the gate again."""
        if str(error) != self.trouble:
            logger.warning("engine lost: %s", error)
        self.usable, self.trouble = False, str(error)
        self.wrong = not isinstance(error, EngineDown)

    def abandon(self) -> None:
        """End what is waiting for it in `EngineDown`."""
        for wait in self.waits:
            wait.reschedule(0)

    async def wait_for(self, answer: Awaitable[T]) -> T:
        """Return what the engine answers, unless it is abandoned meanwhile."""
        try:
            async with asyncio.timeout(None) as wait:
                self.waits.add(wait)
                try:
                    return await answer
                finally:
                    self.waits.discard(wait)
        except TimeoutError as error:
            raise EngineDown(self.trouble) from error

    @contextmanager
    def busy(self) -> Iterator[None]:
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1


class EnginePool:
    """Implements `app.engine.Engine` over several servers of one model.

    An engine that fails is left alone until it answers again and passes `gate` again: it may be another one by then.

    decode: the model's tokens to text, as the engines write it.
    """

    def __init__(
        self, engines: Sequence[RemoteEngine], gate: Callable[[Engine], Awaitable[SelfCheck]], decode: Decode
    ) -> None:
        self._members = [_Member(engine) for engine in engines]
        self._gate = gate
        self._decode = decode
        self._watchers: list[asyncio.Task[None]] = []

    @property
    def fusable(self) -> bool:
        """Whether any engine, up or down, has passed the gate: documents wait for it rather than go without K/V."""
        return any(member.engine.fusable for member in self._members)

    @property
    def refusal(self) -> str:
        return "" if self.fusable else next(member.engine.refusal for member in self._members)

    @property
    def max_model_len(self) -> int:
        return min((m.engine.max_model_len for m in self._members if m.engine.max_model_len), default=0)

    async def start(self) -> None:
        """Wait for the first engine that can be used.

        Raises:
            EngineError: every one of them serves something else, or none has answered for half an hour.
        """
        deadline = time.monotonic() + _START_S
        self._watchers = [asyncio.create_task(self._watch(member)) for member in self._members]
        while not any(member.usable for member in self._members):
            if all(member.wrong for member in self._members) or time.monotonic() > deadline:
                raise EngineError(self._troubles())
            await asyncio.sleep(0.1)

    async def stop(self) -> None:
        for watcher in self._watchers:
            watcher.cancel()
        await asyncio.gather(*self._watchers, return_exceptions=True)
        await asyncio.gather(*(member.engine.stop() for member in self._members))

    async def alive(self) -> bool:
        return any(member.usable for member in self._members)

    def refuse(self, reason: str) -> None:
        for member in self._members:
            member.engine.refuse(reason)

    async def describe(self) -> list[dict[str, Any]]:
        facts = await asyncio.gather(*(member.engine.describe() for member in self._members))
        return [
            {**fact, "usable": member.usable, "trouble": None if member.usable else member.trouble}
            for member, (fact,) in zip(self._members, facts, strict=True)
        ]

    async def store_stats(self) -> Mapping[str, Mapping[str, Any]]:
        usable = [member.engine for member in self._members if member.usable]
        stats = await asyncio.gather(*(engine.store_stats() for engine in usable))
        return {name: each for one in stats for name, each in one.items()}

    async def generate(
        self, token_ids: Sequence[int], sampling: Sampling, plan: FusePlan | None = None, salt: str | None = None
    ) -> AsyncIterator[Generated]:
        """See `Engine`; an answer that an engine leaves unfinished is continued by another.

        Raises:
            NotReady: no engine is left.
        """
        unfinished = Unfinished(token_ids, sampling, plan, self._decode)
        for member in self._choices(salt or ""):
            answer: Any = member.engine.generate(*unfinished.request(), salt)
            try:
                with member.busy():
                    async with aclosing(answer):
                        while piece := await member.wait_for(anext(answer, None)):
                            yield unfinished.take(piece)
                return
            except EngineDown as error:
                member.lost(error)

    async def log_likelihood(
        self, before: Sequence[int], token_ids: Sequence[int], plan: FusePlan | None = None
    ) -> float:
        return await self._anywhere(lambda engine: engine.log_likelihood(before, token_ids, plan))

    async def save(self, steps: Sequence[SaveStep]) -> Saved:
        return await self._anywhere(lambda engine: engine.save(steps))

    async def _anywhere(self, ask: Callable[[RemoteEngine], Awaitable[T]]) -> T:
        for member in self._choices(""):
            try:
                with member.busy():
                    return await member.wait_for(ask(member.engine))
            except EngineDown as error:
                member.lost(error)
        raise AssertionError("choices end in an error")

    def _choices(self, salt: str) -> Iterator[_Member]:
        """Yield engines to try, each once: a request that brings down what it meets must not meet them all for ever.

        The least busy first; of several the one that had this salt before, whose prefix cache may help.

        Raises:
            NotReady: no other engine can be used.
        """
        tried: list[_Member] = []
        while usable := [member for member in self._members if member.usable and member not in tried]:
            tried.append(min(usable, key=lambda one: (one.running, zlib.crc32(f"{salt} {one.engine.url}".encode()))))
            yield tried[-1]
        logger.error("%s", self._troubles())
        raise NotReady("No engine can be used at present")

    def _troubles(self) -> str:
        return "no engine can be used: " + "; ".join(member.trouble for member in self._members)

    async def _watch(self, member: _Member) -> None:
        while True:
            try:
                if not member.usable:
                    await self._admit(member)
                elif not await member.engine.alive():
                    member.lost(EngineDown(f"{member.engine.url}: it stopped answering"))
                    if await self.alive():  # another one can take over what may never come
                        member.abandon()
            except Exception:  # a watcher that ended would leave its engine out for good
                logger.exception("engine %s cannot be judged", member.engine.url)
            await asyncio.sleep(_WATCH_S)

    async def _admit(self, member: _Member) -> None:
        """Use the engine from now on, if it answers and serves the right model."""
        try:
            await member.engine.start()
            check = await self._gate(member.engine)
        except EngineError as error:
            member.lost(error)
            return
        if not check.passed:
            member.engine.refuse(check.reason)
        logger.info("engine %s can be used%s", member.engine.url, "" if check.passed else f", unfused: {check.reason}")
        member.usable = True

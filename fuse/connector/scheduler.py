"""The scheduler's half of the connector: decides what is loaded, recomputed and saved, and when."""

from collections.abc import Callable, Iterator

from vllm.logger import init_logger
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.request import Request

from fuse.connector.metadata import FuseMetadata, LoadJob, RecomputeJob, SaveJob
from fuse.plan import FusePlan, SaveOrder, parse_params, tag_of
from fuse.policies import make_policy

logger = init_logger(__name__)


class FuseScheduler:
    """Owns the state of fused requests between steps. Single-threaded, in the engine process.

    fusable: whether every worker has said that its model can be fused; until then nothing is offered, ordered or saved.
    evict: takes blocks out of vLLM's prefix cache; the connector sets it.

    Life of a fused request: `matched_tokens` offers its whole context; once blocks are allocated (`allocated`) a load
    job goes to the worker; when the worker is ready to recompute, the request is scheduled again, with all its blocks,
    and `build_metadata` adds the recompute job of that same step.
    """

    def __init__(self, fusable: bool = False) -> None:
        self.fusable = fusable
        self.evict: Callable[[set[int]], object] = lambda block_ids: None
        self._pending = FuseMetadata()
        self._loading: dict[str, list[int]] = {}

    def matched_tokens(self, request: Request, computed: int) -> int:
        """Return how many context tokens beyond `computed` the plan provides. Free of side effects."""
        plan = _fuse_plan(request) if self.fusable else None
        return max(plan.context_tokens - computed, 0) if plan else 0

    def allocated(self, request: Request, block_ids: list[int], external: int) -> None:
        """Order the load of `external` context tokens into the request's new blocks."""
        plan = _fuse_plan(request) if external else None
        if plan is None:
            return
        start = plan.context_tokens - external
        tag, salt = tag_of(request.kv_transfer_params), str(request.cache_salt)
        self._pending.loads.append(LoadJob(request.request_id, plan, block_ids, start, tag, salt))
        self._loading[request.request_id] = list(request.prompt_token_ids or ())

    def build_metadata(self, output: SchedulerOutput) -> FuseMetadata:
        """Close the step's orders. A request being loaded that is scheduled again is ready to be recomputed."""
        metadata, self._pending = self._pending, FuseMetadata()
        for request_id, block_ids in _scheduled(output):
            token_ids = self._loading.pop(request_id, None)
            if token_ids is not None:
                metadata.recomputes.append(RecomputeJob(request_id, token_ids, block_ids))
        metadata.idle = output.total_num_scheduled_tokens == 0
        return metadata

    def finished(self, request: Request, block_ids: list[int]) -> bool:
        """Order the save of a finished ingest request (True: keep its blocks), or forget a fused one."""
        request_id = request.request_id
        order = _parse(request) if self.fusable else None
        if isinstance(order, SaveOrder) and order.end <= min(request.num_computed_tokens, request.num_prompt_tokens):
            tag = tag_of(request.kv_transfer_params)
            self._pending.saves.append(SaveJob(request_id, order, block_ids, tag))
            return True
        if self._loading.pop(request_id, None) is not None:
            self._pending.dropped.append(request_id)
            # Loaded blocks are in the prefix cache before they are recomputed: nobody may find these.
            self.evict(set(block_ids))
        return False


def _scheduled(output: SchedulerOutput) -> Iterator[tuple[str, list[int]]]:
    """Yield the requests that start or resume in this step, with all their blocks."""
    for new in output.scheduled_new_reqs:
        yield new.req_id, new.block_ids[0]
    cached = output.scheduled_cached_reqs
    for request_id, block_ids in zip(cached.req_ids, cached.new_block_ids, strict=True):
        if request_id in cached.resumed_req_ids and block_ids is not None:
            yield request_id, block_ids[0]


def _parse(request: Request) -> FusePlan | SaveOrder | None:
    try:
        parsed = parse_params(request.kv_transfer_params)
        if isinstance(parsed, FusePlan):
            make_policy(parsed.policy)
        return parsed
    except Exception as error:  # the parameters come from outside, and an error here would end the engine
        logger.warning("request %s is served without fusion: %r", request.request_id, error)
        return None


def _fuse_plan(request: Request) -> FusePlan | None:
    """Return the request's plan if it may be fused: salted, and with a question behind its context."""
    plan = _parse(request)
    if not isinstance(plan, FusePlan):
        return None
    if request.cache_salt is None or plan.context_tokens + plan.answered >= request.num_prompt_tokens:
        logger.warning("request %s is served without fusion: no cache_salt, or no question", request.request_id)
        return None
    return plan

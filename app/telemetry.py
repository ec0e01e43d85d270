"""Logging and the service's Prometheus metrics."""

import logging
import sys
from contextvars import ContextVar

from prometheus_client import Counter, Histogram
from pythonjsonlogger.json import JsonFormatter

SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

HTTP_REQUESTS = Counter("kvfuse_http_requests_total", "HTTP requests.", ["route", "method", "status"])
HTTP_SECONDS = Histogram("kvfuse_http_request_seconds", "Time to the end of a response.", ["route"], buckets=SECONDS)
FIRST_TOKEN_SECONDS = Histogram("kvfuse_time_to_first_token_seconds", "Question to first text.", buckets=SECONDS)
TOKENS = Counter("kvfuse_prompt_tokens_total", "Prompt tokens by where their K/V came from.", ["source"])
STAGE_SECONDS = Histogram("kvfuse_stage_seconds", "Time in one stage of an answer.", ["stage"], buckets=SECONDS)
SELECTIONS = Counter("kvfuse_selections_total", "Choices of passages by how relevant the best one is.", ["relevance"])
INGESTED_DOCUMENTS = Counter("kvfuse_ingested_documents_total", "Documents whose ingest ended.", ["status"])
INGESTED_TOKENS = Counter("kvfuse_ingested_tokens_total", "Passage tokens whose K/V was made ready.")
RERANK_FAILURES = Counter("kvfuse_rerank_failures_total", "Failures of the rerank server, zsum3 taking its place.")

request_id: ContextVar[str] = ContextVar("request_id", default="-")

_HTTP_CLIENTS = ("httpx", "httpx2")
"""Of the openai package, by its version: they tell of every request, also of looking after an engine's health."""


class _RequestIdFilter(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        record.request_id = request_id.get()
        return True


def configure_logging(level: str) -> None:
    """Log to standard error: lines for a terminal, JSON for anything else. Replaces earlier handlers."""
    handler = logging.StreamHandler()
    handler.addFilter(_RequestIdFilter())
    handler.setLevel(level.upper())  # libraries set their own loggers' levels
    fields = "%(asctime)s %(levelname)s %(name)s %(request_id)s %(message)s"
    handler.setFormatter(logging.Formatter(fields) if sys.stderr.isatty() else JsonFormatter(fields))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for name in _HTTP_CLIENTS:
        logging.getLogger(name).setLevel(logging.NOTSET if level == "debug" else logging.WARNING)

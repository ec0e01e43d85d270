"""Where decoded K/V waits on the host, and its way to the device."""

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

import torch


class Staging(Protocol):
    """Used by loading threads, except for `mark` and `used`, which are the worker thread's.

    beside: whether the device computes while loading threads work, instead of sharing their processor.
    """

    beside: bool

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Return a host buffer to decode into."""
        ...

    def mark(self) -> torch.cuda.Event | None:
        """Return a point in the worker's own work that a lane can wait for."""
        ...

    def lane(self, after: torch.cuda.Event | None) -> AbstractContextManager[None]:
        """Enter this thread's own queue of device work, behind `after`; on leaving, wait until it is empty."""
        ...

    def place(self, buffer: torch.Tensor) -> torch.Tensor:
        """Return the content of a host buffer on the device. Inside a lane."""
        ...

    def used(self, placed: torch.Tensor) -> None:
        """Say that work just queued by the worker reads `placed`: its memory may be given away only after that."""
        ...


def staging_for(device: torch.device) -> Staging:
    """Return the staging of a device."""
    return CudaStaging(device) if device.type == "cuda" else HostStaging()


class HostStaging:
    """The host is the device: what was decoded is in place."""

    beside = False

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype)

    def mark(self) -> None:
        return None

    @contextmanager
    def lane(self, after: torch.cuda.Event | None) -> Iterator[None]:
        yield

    def place(self, buffer: torch.Tensor) -> torch.Tensor:
        return buffer

    def used(self, placed: torch.Tensor) -> None:
        """Nothing is given away."""


class CudaStaging:
    """Page-locked buffers and a copy stream for each loading thread, so that copies run beside the model's kernels.

    torch keeps page-locked memory for the next load, and gives a buffer out again only when its copy has ended. Written
    after torch's notes on CUDA semantics; not run on a GPU yet.
    """

    beside = True

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._own = threading.local()

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, pin_memory=True)

    def mark(self) -> torch.cuda.Event:
        event: torch.cuda.Event = torch.cuda.current_stream(self._device).record_event()
        return event

    @contextmanager
    def lane(self, after: torch.cuda.Event | None) -> Iterator[None]:
        stream = self._stream()
        if after is not None:
            stream.wait_event(after)
        with torch.cuda.stream(stream):
            yield
        stream.synchronize()

    def place(self, buffer: torch.Tensor) -> torch.Tensor:
        return buffer.to(self._device, non_blocking=True)

    def used(self, placed: torch.Tensor) -> None:
        placed.record_stream(torch.cuda.current_stream(self._device))

    def _stream(self) -> torch.cuda.Stream:
        if not hasattr(self._own, "stream"):
            self._own.stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        stream: torch.cuda.Stream = self._own.stream
        return stream

"""The worker half of a model that is not fused: fails every load, so that unloaded KV is never served."""

from fuse.connector.metadata import FuseMetadata


class RefusingWorker:
    """Stands in for `FuseWorker` until a model is bound, and for good when it is refused."""

    def __init__(self) -> None:
        self._received: set[str] = set()
        self._sent: set[str] = set()
        self._invalid: set[int] = set()

    def begin_step(self, metadata: FuseMetadata) -> None:
        for load in metadata.loads:
            self._received.add(load.request_id)
            self._invalid.update(load.block_ids)
        self._sent.update(save.request_id for save in metadata.saves)

    def end_step(self, idle: bool) -> None:
        """Nothing is in progress."""

    def take_finished(self) -> tuple[set[str], set[str]]:
        finished = self._sent, self._received
        self._sent, self._received = set(), set()
        return finished

    def invalid_blocks(self) -> set[int]:
        """Return the blocks that were to be loaded since the last call."""
        invalid, self._invalid = self._invalid, set()
        return invalid

    def close(self) -> None:
        """Nothing is held."""

"""A tier in an object store: S3, GCS, Azure or a folder, by URL, through obstore.

Objects are `<first two digits>/<key>.kvc` below the URL's path. Credentials and endpoints come from the provider's own
environment variables (`AWS_ENDPOINT`, `AWS_ACCESS_KEY_ID`, ...). A put of an object is atomic in all of them.
Last use is what this process and the index know; the store itself keeps only when an object was written.
"""

from collections.abc import Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlparse
from urllib.request import url2pathname

import obstore
from obstore.exceptions import BaseError
from obstore.store import LocalStore, from_url

from store.errors import TierFull
from store.format import HEADER_GUESS
from store.keys import ChunkKey, is_hash
from store.source import BytesSource, Source
from store.tier import TierEntry

SUFFIX = ".kvc"
UNLIMITED = 1 << 62
_TIMEOUT = "10s"
_RETRIES = {"max_retries": 2, "retry_timeout": timedelta(seconds=10)}


def open_object_store(url: str) -> Any:
    """The object store at `url`; a `file://` folder is made when absent. Raises ValueError on other kinds of URL."""
    parsed = urlparse(url)
    if parsed.scheme == "file":
        return LocalStore(Path(url2pathname(parsed.path)), automatic_cleanup=True, mkdir=True)
    if not parsed.scheme:
        raise ValueError(f"remote tier {url!r}: expected a URL such as s3://bucket/folder")
    try:
        client: Any = {"timeout": _TIMEOUT, "connect_timeout": _TIMEOUT}
        if parsed.scheme == "memory":
            return from_url(url)
        return from_url(url, client_options=client, retry_config=_RETRIES)  # type: ignore[call-overload]
    except BaseError as error:
        raise ValueError(f"remote tier {url!r}: {_first_line(error)}") from error


class ObjectTier:
    """See `store.tier.Tier`, over a store that obstore made. Everything that fails there is an OSError."""

    def __init__(self, name: str, objects: Any, capacity_bytes: int = UNLIMITED) -> None:
        self.name = name
        self.capacity_bytes = capacity_bytes
        self._objects = objects

    def contains(self, key: ChunkKey) -> bool:
        """See `Tier.contains`."""
        try:
            obstore.head(self._objects, _path(key))
        except FileNotFoundError:
            return False
        except BaseError as error:
            raise self._failure(error, key) from error
        return True

    def open(self, key: ChunkKey) -> Source | None:
        """See `Tier.open`: one request brings the object's size and its first bytes, ranges are requested as read."""
        try:
            result = obstore.get(self._objects, _path(key), options={"range": (0, HEADER_GUESS)})
            size, first = result.meta["size"], memoryview(result.bytes())
        except FileNotFoundError:
            return None
        except BaseError as error:
            # An empty object has no range to give: whether that was it is seen by asking for the whole.
            return self._open_empty(key, error)
        if len(first) != min(size, HEADER_GUESS):
            raise OSError(f"{self.name} tier: {len(first)} bytes of chunk {key}, expected {min(size, HEADER_GUESS)}")
        return _ObjectSource(self, key, size, first)

    def write(self, key: ChunkKey, parts: Iterable[bytes | memoryview]) -> int:
        """See `Tier.write`."""
        body = b"".join(parts)
        if len(body) > self.capacity_bytes:
            raise TierFull(f"{self.name} tier: no room for chunk {key}")
        try:
            obstore.put(self._objects, _path(key), body, use_multipart=False)
        except BaseError as error:
            raise self._failure(error, key) from error
        return len(body)

    def delete(self, key: ChunkKey) -> bool:
        """See `Tier.delete`; object stores do not say whether there was one, so they are asked first."""
        if not self.contains(key):
            return False
        try:
            obstore.delete(self._objects, _path(key))
        except FileNotFoundError:
            return False
        except BaseError as error:
            raise self._failure(error, key) from error
        return True

    def touch(self, key: ChunkKey) -> None:
        """See `Tier.touch`; objects carry no time of use."""

    def entries(self) -> Iterator[TierEntry]:
        """See `Tier.entries`; `last_used` is when the object was written."""
        try:
            for page in obstore.list(self._objects):
                for meta in page:
                    key = meta["path"].rpartition("/")[2].removesuffix(SUFFIX)
                    if is_hash(key) and meta["path"] == _path(ChunkKey(key)):
                        yield TierEntry(ChunkKey(key), meta["size"], meta["last_modified"].timestamp())
        except BaseError as error:
            raise OSError(f"{self.name} tier: cannot be listed: {_first_line(error)}") from error

    def recover(self) -> int:
        """See `Tier.recover`; an interrupted put leaves nothing."""
        return 0

    def read_range(self, key: ChunkKey, start: int, end: int) -> memoryview:
        """Exactly these bytes of an object. Raises OSError."""
        try:
            data = memoryview(obstore.get_range(self._objects, _path(key), start=start, end=end))
        except BaseError as error:
            raise self._failure(error, key) from error
        if len(data) != end - start:
            raise OSError(f"{self.name} tier: {len(data)} bytes of chunk {key}, expected {end - start}")
        return data

    def _open_empty(self, key: ChunkKey, error: BaseError) -> Source:
        try:
            whole = memoryview(obstore.get(self._objects, _path(key)).bytes())
        except (OSError, BaseError):
            raise self._failure(error, key) from error
        if len(whole):
            raise self._failure(error, key) from error
        return BytesSource(whole)

    def _failure(self, error: BaseError, key: ChunkKey) -> OSError:
        return OSError(f"{self.name} tier, chunk {key}: {_first_line(error)}")


class _ObjectSource:
    """An object of known size whose first bytes are here."""

    def __init__(self, tier: ObjectTier, key: ChunkKey, size: int, first: memoryview) -> None:
        self.size = size
        self._tier = tier
        self._key = key
        self._first = first

    def read(self, start: int, end: int) -> memoryview:
        """See `Source.read`."""
        if end <= len(self._first):
            return self._first[start:end]
        return self._tier.read_range(self._key, start, end)


def _path(key: ChunkKey) -> str:
    return f"{key[:2]}/{key}{SUFFIX}"


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]

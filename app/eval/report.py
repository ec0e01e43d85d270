"""stub"""

from pathlib import Path
from typing import Any


def write_report(out: Path, summary: dict[str, Any]) -> Path:
    """Stub."""
    return out

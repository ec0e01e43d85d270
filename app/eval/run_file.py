"""`run.json`: what a run's folder holds results of, and where it was measured."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from app.eval.errors import EvalError
from app.eval.machine import describe_machine

SCHEMA = "kvfuse-run/1"


class RunFile:
    """`run.json` of the run in folder `out`."""

    def __init__(self, out: Path) -> None:
        self._path = out / "run.json"

    def read(self) -> dict[str, Any]:
        """`spec`, `settings` and `machine`. Raises EvalError when the folder holds no run."""
        try:
            run = json.loads(self._path.read_text(encoding="utf-8"))
            return {name: run[name] for name in ("spec", "settings", "machine")}
        except OSError as error:
            raise EvalError(f"no run: {self._path} cannot be read ({error.strerror})") from error
        except (ValueError, KeyError, TypeError) as error:
            raise EvalError(f"{self._path} is damaged: {error!r}") from error

    def claim(self, spec: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
        """Make the folder one of this run.

        Raises:
            EvalError: it holds a run that differs in what is named, or cannot be written.
        """
        ours = json.loads(json.dumps({"spec": spec, "settings": settings}))
        if self._path.exists():
            theirs = self.read()
            if differing := [name for part in ours for name in _differing(ours[part], theirs[part])]:
                folder = self._path.parent
                raise EvalError(f"{folder} holds a run that differs in {', '.join(differing)}: choose another --out")
        else:
            self._write({"schema": SCHEMA, **ours, "machine": describe_machine()})

    def _write(self, run: Mapping[str, Any]) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            whole = self._path.with_suffix(".part")
            whole.write_text(json.dumps(run, indent=1) + "\n", encoding="utf-8")
            whole.replace(self._path)
        except OSError as error:
            raise EvalError(f"{self._path.parent} cannot be written ({error.strerror})") from error


def _differing(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    return [name for name in ours if ours[name] != theirs.get(name)]

"""Renders the README's figures out of the benchmarks' JSON: `python -m app.eval.readme`.

Only what stands between the two markers is rewritten, so that the README can never disagree with what was measured.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from app.eval.bench.registry import BENCHES
from app.eval.bench.result import RESULTS, SCHEMA, Bar, Figure
from app.eval.errors import EvalError

START, END = "<!-- bench:start -->", "<!-- bench:end -->"


def render(results: Sequence[Mapping[str, Any]]) -> str:
    """Return the results as markdown: one table each, what was measured first, goals and notes after it."""
    if not results:
        raise EvalError("no benchmark has been run: `make bench` writes the figures")
    parts = [
        _machine([result["machine"] for result in results]),
        *(part for result in results for part in _section(result)),
    ]
    return "\n\n".join(parts)


def rewrite(readme: Path, results: Path = RESULTS) -> None:
    """Put the figures of every result in folder `results` between the markers of `readme`.

    Raises:
        EvalError: the markers are missing or no benchmark has been run.
    """
    text = readme.read_text(encoding="utf-8")
    before, start, rest = text.partition(START)
    _, end, after = rest.partition(END)
    if not start or not end:
        raise EvalError(f"{readme} has no line {START} followed by {END}")
    body = render(list(_read(results)))
    readme.write_text(f"{before}{START}\n{body}\n{END}{after}", encoding="utf-8")


def _read(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield every result of our schema, in the order that `kvfuse bench --help` has."""
    order = [bench.name for bench in BENCHES]
    paths = sorted(folder.glob("*.json"), key=lambda path: order.index(path.stem) if path.stem in order else len(order))
    for path in paths:
        content = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(content, dict) and content.get("schema") == SCHEMA:
            yield content


def _machine(machines: Sequence[Mapping[str, Any]]) -> str:
    machine = machines[-1]
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
    commits = ", ".join(dict.fromkeys(one["commit"] for one in machines if one["commit"])) or "unknown"
    return (
        f"Measured at commit {commits} on {machine['cores']} cores of {machine['cpu']}, {machine['memory_gib']:g} GiB, "
        f"Python {machine['python']}, {packages}. Medians, with the least and the greatest repetition in brackets."
    )


def _section(result: Mapping[str, Any]) -> Iterator[str]:
    yield f"**{result['title']}**"
    for name in dict.fromkeys(row.get("table", "") for row in result["rows"]):
        yield _table(name, [row for row in result["rows"] if row.get("table", "") == name])
    if result["bars"]:
        yield "\n".join(f"- {_bar(bar)}" for bar in result["bars"])
    if result["notes"]:
        yield "\n".join(result["notes"])


def _table(title: str, rows: Sequence[Mapping[str, Any]]) -> str:
    columns = list(dict.fromkeys(name for row in rows for name in row["figures"]))
    lines = [[title, *columns], ["---", *("---:" for _ in columns)]]
    for row in rows:
        name = f"{row['name']} (baseline)" if row["baseline"] else row["name"]
        lines.append([name, *(str(Figure(**row["figures"][c])) if c in row["figures"] else "" for c in columns)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _bar(bar: Mapping[str, Any]) -> str:
    return str(Bar(bar["claim"], bar["value"], bar["limit"], bar["at_least"]))


def main() -> None:
    """Rewrite README.md in the current folder."""
    try:
        rewrite(Path("README.md"))
    except (EvalError, OSError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()

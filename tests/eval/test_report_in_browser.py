"""The report opened in Chromium: every chart is drawn and nothing sticks out, on a wide and on a narrow screen."""

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from app.eval.report import write_report
from app.eval.summary import summarise
from tests.eval.made_up import records, write_run

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: the report was not opened")

FRAME = """<!doctype html><body style="margin:0">
<iframe src="report.html" style="border:0;width:{width}px;height:900px"></iframe><pre></pre><script>
  const frame = document.querySelector("iframe"), errors = [];
  frame.contentWindow.addEventListener("error", event => errors.push(event.message));
  frame.onload = () => setTimeout(() => {{
    const page = frame.contentDocument, root = page.documentElement;
    const charts = [...page.querySelectorAll("[id^=chart]")].map(chart => ({{
      width: chart.querySelector(".main-svg").getBoundingClientRect().width, room: chart.clientWidth,
      marks: chart.querySelectorAll(".point, path.js-line").length}}));
    document.querySelector("pre").textContent = JSON.stringify(
      {{errors, charts, width: root.clientWidth, needed: root.scrollWidth}});
  }}, 1000);
</script>"""


def opened(folder: Path, width: int) -> dict[str, Any]:
    """What the page looks like in a frame of that width (Chromium's own windows are never narrower than 500)."""
    page = folder / f"frame-{width}.html"
    page.write_text(FRAME.format(width=width))
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files", "--dump-dom"]
    options += [
        f"--window-size={max(width, 500)},900",
        "--virtual-time-budget=20000",
        f"--user-data-dir={folder / 'user'}",
    ]
    command = [str(CHROMIUM), *options, page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    found = re.search(r"<pre>(.+?)</pre>", done.stdout)
    assert found, done.stderr[-2000:]
    looks: dict[str, Any] = json.loads(unescape(found[1]))
    return looks


@pytest.mark.parametrize("width", [1440, 400])
def test_report(tmp_path: Path, width: int) -> None:
    write_report(tmp_path, summarise(write_run(tmp_path, records(3, kl=0.4))))
    page = opened(tmp_path, width)
    assert page["errors"] == []
    assert page["needed"] <= page["width"] <= width, "the page scrolls sideways"
    assert len(page["charts"]) == 6
    for chart in page["charts"]:
        assert chart["marks"] > 0
        assert 200 < chart["width"] <= chart["room"]

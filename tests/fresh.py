"""Python code run in a process of its own, for what a process does once or must not have done."""

import subprocess
import sys


def run_fresh(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `code` and wait; raises CalledProcessError unless it ends well."""
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)

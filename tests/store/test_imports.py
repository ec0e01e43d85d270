import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["store", "store.tiered", "store.config"])
def test_configuring_a_store_loads_no_compiler(module: str) -> None:
    """vLLM's CPU worker inspects every loaded module when it starts, and fails on llvmlite's."""
    code = f"import sys, {module}\nprint([name for name in ('numba', 'llvmlite') if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"

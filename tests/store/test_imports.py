import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["store", "store.tiered", "store.config"])
def test_configuring_a_store_loads_no_compiler(module: str) -> None:
    """vLLM's CPU worker inspects every loaded module when it starts, and fails on llvmlite's."""
    code = f"import sys, {module}\nprint([name for name in ('numba', 'llvmlite') if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_the_chain_for_short_lived_processes_loads_no_compiler() -> None:
    code = (
        "import sys, numpy as np\nfrom store.codecs.planes import BytePlanes\n"
        "from store.deflate import SoftwareDeflate\n"
        "BytePlanes(SoftwareDeflate()).encode(np.zeros((2, 9, 4), np.uint16), np.empty((2, 0), np.uint8), 1)\n"
        "print([name for name in ('numba', 'llvmlite') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"

import pytest

from tests.fresh import run_fresh

ENCODING = (
    "import numpy as np\nfrom store.codecs.planes import BytePlanes\nfrom store.deflate import SoftwareDeflate\n"
    "BytePlanes(SoftwareDeflate()).encode(np.zeros((2, 9, 4), np.uint16), np.empty((2, 0), np.uint8), 1)"
)


def compilers_loaded_by(code: str) -> str:
    look = "import sys\nprint([name for name in ('numba', 'llvmlite') if name in sys.modules])"
    return run_fresh(f"{code}\n{look}").stdout.strip()


@pytest.mark.parametrize("module", ["store", "store.tiered", "store.config"])
def test_configuring_a_store_loads_no_compiler(module: str) -> None:
    """vLLM's CPU worker inspects every loaded module when it starts, and fails on llvmlite's."""
    assert compilers_loaded_by(f"import {module}") == "[]"


def test_the_chain_for_short_lived_processes_loads_no_compiler() -> None:
    assert compilers_loaded_by(ENCODING) == "[]"

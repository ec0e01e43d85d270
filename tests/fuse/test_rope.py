"""Re-rotation: moving a rotated key equals rotating the original at the new position."""

import pytest
import torch

from fuse.rope import RotaryTable


def rotate_at(keys: torch.Tensor, positions: torch.Tensor, frequencies: torch.Tensor, neox: bool) -> torch.Tensor:
    """Textbook RoPE in float64, written with complex numbers: independent of the code under test."""
    dim = 2 * frequencies.numel()
    rotary, rest = keys[..., :dim].to(torch.float64), keys[..., dim:]
    if neox:
        pairs = torch.complex(rotary[..., : dim // 2], rotary[..., dim // 2 :])
    else:
        pairs = torch.complex(rotary[..., 0::2], rotary[..., 1::2])
    turned = pairs * torch.polar(torch.ones(1, dtype=torch.float64), positions[:, None, None] * frequencies)
    if neox:
        rotated = torch.cat([turned.real, turned.imag], dim=-1)
    else:
        rotated = torch.stack([turned.real, turned.imag], dim=-1).flatten(-2)
    return torch.cat([rotated.to(keys.dtype), rest], dim=-1)


@pytest.mark.parametrize("neox", [True, False])
@pytest.mark.parametrize("rotary_dim", [64, 32])
def test_moving_equals_rotating_at_the_new_position(neox: bool, rotary_dim: int) -> None:
    generator = torch.Generator().manual_seed(7)
    keys = torch.randn(40, 3, 64, generator=generator)
    frequencies = 1.0 / 1e5 ** (torch.arange(0, rotary_dim, 2, dtype=torch.float64) / rotary_dim)
    old = torch.arange(30, 70)
    shifts = torch.where(torch.arange(40) < 20, 5000, -30)
    moved = rotate_at(keys, old.to(torch.float64), frequencies, neox)
    RotaryTable(frequencies, neox).rotation(shifts).apply(moved)
    expected = rotate_at(keys, (old + shifts).to(torch.float64), frequencies, neox)
    torch.testing.assert_close(moved, expected, atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("neox", [True, False])
@pytest.mark.parametrize("rotary_dim", [64, 32])
def test_bf16_keys_are_rounded_once(neox: bool, rotary_dim: int) -> None:
    generator = torch.Generator().manual_seed(7)
    keys = torch.randn(40, 3, 64, generator=generator).to(torch.bfloat16)
    frequencies = 1.0 / 1e5 ** (torch.arange(0, rotary_dim, 2, dtype=torch.float64) / rotary_dim)
    shifts = torch.arange(777, 817)
    exact = rotate_at(keys.float(), shifts.to(torch.float64), frequencies, neox).to(torch.bfloat16)
    untouched = keys[..., rotary_dim:].clone()
    RotaryTable(frequencies, neox).rotation(shifts).apply(keys)
    different = (keys != exact).float().mean()
    assert different < 0.001
    assert torch.equal(keys[..., rotary_dim:], untouched)


def test_a_shift_of_zero_changes_nothing() -> None:
    keys = torch.randn(4, 1, 64).to(torch.bfloat16)
    before = keys.clone()
    RotaryTable(torch.ones(32, dtype=torch.float64), True).rotation(torch.zeros(4, dtype=torch.int64)).apply(keys)
    assert torch.equal(keys, before)

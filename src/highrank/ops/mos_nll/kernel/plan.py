"""How the kernels are cut into programs, and the vocabulary into slabs.

Tiles of 128 x 128, two programs a multiprocessor, hide one's exponentials under the other's products. Tiles of
128 x 256 read a quarter less from the L2 cache, and win where products outweigh the rest (D > 512) or a program has few
tiles (V < 16384). A larger slab means fewer launches and less reading and writing of dh's sum: what a slab needs and
the sum share `scratch_bytes`, such that some 28,000 rows (D = 280) fit in 64 MiB (128 MiB for D > 512), all counted,
and more rows in four times what they take themselves.
"""

from functools import lru_cache
from typing import NamedTuple

import torch


class Config(NamedTuple):
    """How a kernel is cut into programs."""

    block_m: int  # rows of h
    block_n: int  # words
    block_d: int
    num_warps: int
    num_stages: int
    tma: bool  # tiles through the tensor memory accelerator (since Hopper), else through pointers
    flatten: bool  # one loop over (tile, chunk of D), so that loads run ahead across tiles
    programs: int  # a multiprocessor holds: with two, the exponentials of one hide under the products of the other
    halves: bool = False  # a tile of dz leaves in two halves, through half the shared memory
    scratch_bytes: int = 60 * 2**20  # of the sum of dh and a slab of dz, dW and W; half of it for W in the forward pass


def forward_config(dtype: torch.dtype, device: torch.device, v: int, d: int) -> Config:
    """The forward kernel's configuration."""
    if dtype == torch.float32:  # no matrix unit multiplies exact float32: small tiles of plain multiply-adds
        return Config(64, 64, 16, num_warps=4, num_stages=3, tma=False, flatten=False, programs=2)
    if not _has_large_tiles(device):
        return Config(128, 128, 32, num_warps=8, num_stages=3, tma=False, flatten=True, programs=1)
    scratch_bytes = (120 if d > 512 else 60) * 2**20
    if d > 512 or v < 16384:
        return Config(128, 256, 64, 8, num_stages=3, tma=True, flatten=True, programs=1, scratch_bytes=scratch_bytes)
    return Config(128, 128, 64, 4, num_stages=3, tma=True, flatten=True, programs=2, scratch_bytes=scratch_bytes)


def backward_config(dtype: torch.dtype, device: torch.device, v: int, d: int) -> Config:
    """The dlogits kernel's: shared memory for two programs holds three stages and half a tile of dz on its way out."""
    config = forward_config(dtype, device, max(v, 16384), d)  # the vocabulary does not matter
    return config._replace(halves=config.tma and config.programs == 2)


def _has_large_tiles(device: torch.device) -> bool:
    """Hopper and Blackwell for data centres: TMA, and 227 KiB of shared memory a block. GeForce's Blackwell has 99."""
    return _capability(device)[0] in (9, 10)


@lru_cache
def _capability(device: torch.device) -> tuple[int, int]:
    return torch.cuda.get_device_capability(device) if device.type == "cuda" else (0, 0)


@lru_cache
def program_slots(device: torch.device, programs: int) -> int:
    """How many programs run at once."""
    return programs * (torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1)


@lru_cache(maxsize=16384)
def tiles_each(row_blocks: int, tiles: int, slots: int) -> tuple[int, float]:
    """How many tiles of words a program visits, so that the device is busy to the end, and how long that takes in tiles
    one after the other, of which a program costs a quarter to start."""
    each = {-(-tiles // parts) for parts in range(1, min(tiles, 32 if row_blocks > 8 else 128) + 1)}
    rounds = {e: -(-row_blocks * -(-tiles // e) // slots) * (e + 0.25) for e in sorted(each, reverse=True)}
    return min(rounds.items(), key=lambda item: item[1])


@lru_cache(maxsize=1024)
def slab_tiles(row_blocks: int, tiles: int, most: int, slots: int) -> int:
    """How many tiles of words a slab holds, at most `most`, so that all slabs take the fewest rounds: three each, for
    launches and for reading and writing the sum of dh, and those of its tiles."""

    def rounds(t: int) -> float:
        return 3 + tiles_each(row_blocks, t, slots)[1] if t > 0 else 0

    few = range(most, most // 2, -1) if most < tiles else [tiles]
    return min(few, key=lambda t: tiles // t * rounds(t) + rounds(tiles % t))

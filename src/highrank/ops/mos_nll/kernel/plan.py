"""How kernels are divided into programs, and the vocabulary into slabs.

With tiles of 128 x 128 and two programs per multiprocessor, one program computes exponentials while the other computes
products. Tiles of 128 x 256 read a quarter less from the L2 cache, and are faster where products dominate (D > 512) or
a program has few tiles (V < 16384). Larger slabs mean fewer launches, and less reading and writing of the sum dh. A
slab and that sum share `scratch_bytes`: about 28,000 rows (D = 280) fit in 60 MiB (120 MiB for D > 512), and more rows
in four times their own size.
"""

from functools import lru_cache
from typing import NamedTuple

import torch

KEPT_SHARE = 1 / 3  # of the rows, for which sampled kernels are planned; the host does not know the real one


class Config(NamedTuple):
    """How a kernel is divided into programs."""

    block_m: int  # rows of h
    block_n: int  # words
    block_d: int
    num_warps: int
    num_stages: int
    tma: bool  # tiles move through the tensor memory accelerator (since Hopper), else through pointers
    flatten: bool  # one loop over (tile, chunk of D), so that loads run ahead across tiles
    programs: int  # per multiprocessor
    halves: bool = False  # write a tile of dz in two halves, through half the shared memory
    scratch_bytes: int = 60 * 2**20  # for dh and a slab of dz, dW and W; half of it for W in the forward pass


def forward_config(dtype: torch.dtype, device: torch.device, v: int, d: int) -> Config:
    """Return the configuration of the forward kernel."""
    if dtype == torch.float32:  # without matrix units, which round float32: small tiles
        return Config(64, 64, 16, num_warps=4, num_stages=3, tma=False, flatten=False, programs=2)
    if not _has_large_tiles(device):
        return Config(128, 128, 32, num_warps=8, num_stages=3, tma=False, flatten=True, programs=1)
    scratch_bytes = (120 if d > 512 else 60) * 2**20
    if d > 512 or v < 16384:
        return Config(128, 256, 64, 8, num_stages=3, tma=True, flatten=True, programs=1, scratch_bytes=scratch_bytes)
    return Config(128, 128, 64, 4, num_stages=3, tma=True, flatten=True, programs=2, scratch_bytes=scratch_bytes)


def backward_config(dtype: torch.dtype, device: torch.device, v: int, d: int) -> Config:
    """Return the configuration of the dlogits kernel.

    Two programs share a multiprocessor's memory, which holds three stages and half a tile of dz for each.
    """
    config = forward_config(dtype, device, max(v, 16384), d)  # here a small vocabulary does not change the tiles
    return config._replace(halves=config.tma and config.programs == 2)


def _has_large_tiles(device: torch.device) -> bool:
    """Return whether the GPU has TMA and 227 KiB of shared memory per block: data-centre Hopper and Blackwell."""
    return _capability(device)[0] in (9, 10)


@lru_cache
def _capability(device: torch.device) -> tuple[int, int]:
    return torch.cuda.get_device_capability(device) if device.type == "cuda" else (0, 0)


@lru_cache
def program_slots(device: torch.device, programs: int) -> int:
    """Return how many programs run at once."""
    return programs * (torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1)


@lru_cache(maxsize=16384)
def tiles_each(row_blocks: int, tiles: int, slots: int) -> tuple[int, float]:
    """Return how many tiles of words each program should visit to finish earliest, and the time, in tiles.

    Starting a program costs a quarter of a tile.
    """
    each = {-(-tiles // parts) for parts in range(1, min(tiles, 32 if row_blocks > 8 else 128) + 1)}
    rounds = {e: -(-row_blocks * -(-tiles // e) // slots) * (e + 0.25) for e in sorted(each, reverse=True)}
    return min(rounds.items(), key=lambda item: item[1])


@lru_cache(maxsize=1024)
def slab_tiles(row_blocks: int, tiles: int, most: int, slots: int) -> int:
    """Return the number of tiles per slab, at most `most`, for which all slabs together take the least time.

    Launches, and reading and writing the sum dh, cost about three tiles per slab.
    """

    def time(t: int) -> float:
        return 3 + tiles_each(row_blocks, t, slots)[1] if t > 0 else 0

    sizes = range(most, most // 2, -1) if most < tiles else [tiles]
    return min(sizes, key=lambda t: tiles // t * time(t) + time(tiles % t))

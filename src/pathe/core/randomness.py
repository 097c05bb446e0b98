"""Stateless random numbers: a draw is a hash of what it is for, so chunking never changes it.

The same bits come out of torch on any device and of the compiled CPU kernel (`kernels.cpu.walks`).
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

import numpy as np
import torch
from torch import Tensor

# The finaliser of splitmix64 (Steele, Lea and Flood, 2014), its constants as signed 64-bit numbers.
GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)
MIX_1 = 0xBF58476D1CE4E5B9 - (1 << 64)
MIX_2 = 0x94D049BB133111EB - (1 << 64)


def mix(x: Tensor) -> Tensor:
    """Scrambles int64 numbers one to one; wraps round as unsigned arithmetic would."""
    x = (x ^ _shift(x, 30)) * MIX_1
    x = (x ^ _shift(x, 27)) * MIX_2
    return x ^ _shift(x, 31)


def keyed(seed: int | Tensor, *keys: Tensor | int) -> Tensor:
    """A random int64 state for each (seed, key, key, ...); keys broadcast."""
    if not isinstance(seed, Tensor):
        device = next((k.device for k in keys if isinstance(k, Tensor)), None)
        seed = torch.tensor(_wrap(seed), dtype=torch.int64, device=device)
    state = mix(seed)
    for key in keys:  # int32 keys would make int32 states
        state = mix((state + GOLDEN) ^ (key.long() if isinstance(key, Tensor) else _wrap(key)))
    return state


def draw(state: Tensor, counter: int | Tensor) -> Tensor:
    """The counter-th random int64 of each state."""
    step = (counter + 1) * GOLDEN
    return mix(state + (step if isinstance(step, Tensor) else _wrap(step)))


def below(bits: Tensor, n: Tensor | int) -> Tensor:
    """Maps random int64 bits to whole numbers in [0, n), for n under 2**31."""
    return (_shift(bits, 32) * n) >> 32


def seed_torch(seed: int, device: torch.device) -> None:
    """Seeds the random numbers of torch on a device, and on the CPU.

    `torch.manual_seed` seeds all kinds of devices. For those that aren't in use it notes the call
    stack, which takes milliseconds.
    """
    if device.type == "cpu":
        torch.default_generator.manual_seed(seed)
    else:
        torch.manual_seed(seed)


def name_keys(names: Iterable[str]) -> Tensor:
    """Returns an int64 key per name, the same on every machine."""
    texts = (name.encode(errors="surrogatepass") for name in names)
    digests = b"".join(blake2b(text, digest_size=8).digest() for text in texts)
    return torch.from_numpy(np.frombuffer(digests, "<i8").astype(np.int64))


def _shift(x: Tensor, n: int) -> Tensor:
    """Logical right shift: torch's own keeps the sign."""
    return (x >> n) & ((1 << (64 - n)) - 1)


def _wrap(x: int) -> int:
    """Any Python int as the int64 of its low 64 bits."""
    return (x + (1 << 63)) % (1 << 64) - (1 << 63)

"""Kernels switched off and watched, and small inputs for them."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest import mock

import torch
from torch import Tensor

from pathe.kernels import dispatch
from pathe.model.packed import pack
from pathe.model.propagation import Reach

FOLDERS = {"cpu": "cpu", "cuda": "gpu"}


@contextmanager
def kernels_off() -> Iterator[None]:
    """Runs the plain versions, as in a forked process."""
    with mock.patch.object(dispatch, "_forked", True):
        dispatch.kernel.cache_clear()
        yield
    dispatch.kernel.cache_clear()


@contextmanager
def watched(device: str, names: list[str]) -> Iterator[set[str]]:
    """Yields the set of the named kernels that have been called so far."""
    called: set[str] = set()

    def spy(name: str, real):
        def run(*args):
            called.add(name)
            return real(*args)

        return run

    with ExitStack() as stack:
        for name in names:
            module, _, function = name.partition(".")
            loaded = importlib.import_module(f"pathe.kernels.{FOLDERS[device]}.{module}")
            real = getattr(loaded, function)
            stack.enter_context(mock.patch.object(loaded, function, spy(name, real)))
        dispatch.kernel.cache_clear()
        yield called
    dispatch.kernel.cache_clear()


def backward(how, learned: list[Tensor], grads: list[Tensor], *rest) -> list[Tensor]:
    """What a function returns, and the gradients of what it learns."""
    learned = [part.detach().clone().requires_grad_() for part in learned]
    found = how(*learned, *rest)
    found = list(found) if isinstance(found, tuple) else [found]
    torch.autograd.backward(found, grads)
    return [*(part.detach() for part in found), *(part.grad for part in learned)]


def attention_example(n=37, heads=2, size=8, tokens=7, rows=20, device="cpu") -> list[Tensor]:
    """Paths of every length from one token on; some rows of the table occur in none of them."""
    made = torch.Generator().manual_seed(n)
    query, keys, values = (torch.randn(k, heads, size, generator=made) for k in (n, rows, rows))
    paths = torch.randint(0, rows - 3, (n, tokens), generator=made, dtype=torch.int32)
    paths[torch.arange(tokens) > torch.arange(n)[:, None] % tokens] = -1
    paths = paths.roll(1, 1)[:, torch.randperm(tokens, generator=made)]  # padding anywhere
    bias = torch.randn(n, heads, tokens, generator=made)
    keep = (torch.rand(n, heads, tokens, generator=made) > 0.3) / 0.7
    return [x.to(device) for x in (query, keys, values, paths, bias, keep)]


def scores_example(b=5, c=300, dim=8, device="cpu") -> list[Tensor]:
    """Queries, candidates and weights of the link head."""
    made = torch.Generator().manual_seed(b + c + dim)
    return [
        torch.randn(*shape, generator=made).to(device) for shape in ((b, dim), (c, dim), (dim,))
    ]


def packed_mask(n=40, longest=41, device="cpu") -> Tensor:
    """Paths of every length from one token on, padded on both sides."""
    lengths = torch.arange(n) * 7 % longest + 1
    first = (longest - lengths) // 2
    columns = torch.arange(longest)
    return ((columns >= first[:, None]) & (columns < (first + lengths)[:, None])).to(device)


def packed_example(mask: Tensor, heads=2, size=8, single=False) -> tuple[list[Tensor], Tensor]:
    """Queries, keys and values of packed paths, and where the queries of each path start."""
    made = torch.Generator().manual_seed(0)
    m, n = int(mask.sum()), len(mask)
    shapes = [(n if single else m, heads, size), (m, heads, size), (m, heads, size)]
    parts = [torch.randn(shape, generator=made).to(mask.device) for shape in shapes]
    each = torch.arange(n + 1, device=mask.device)
    return parts, each if single else pack(mask).offsets_N1


def states_example(reached: Reach, dim: int) -> tuple[list[Tensor], list[Tensor]]:
    """Inputs of `update` and of `answer_scores` for what five queries reached."""
    made = torch.Generator().manual_seed(dim)
    n_before, n_after = reached.sizes[-2:]

    def some(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=made).to(reached.row_BE.device)

    arrived = some(n_after, dim) * some(n_after, 1).exp()
    arrived[::3] = 0
    updating = [some(n_before, dim), arrived, some(dim, 2 * dim)]
    scoring = [some(n_after, dim), some(5, 2 * dim), some(2 * dim, dim), some(1, 2 * dim)]
    return updating, scoring

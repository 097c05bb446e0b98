"""Entity-relation paths: token rows around the entity that they describe, the focus.

A row is entity, relation, entity, ... with the focus in a fixed column: columns at an even distance
from it have entities, the others relations. Incoming walks are on the left of the focus and lead to
it, outgoing walks on the right.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from pathe.core.randomness import draw, keyed, mix
from pathe.core.tensors import Tensors
from pathe.graph.adjacency import Graph
from pathe.graph.held_out import HeldOut
from pathe.graph.walks import walk

Form = Literal["joined", "single"]
Positions = Literal["focused", "absolute"]
N_POSITIONS = 100  # embeddings, as published
OUT, IN, COIN = 0, 1, 2  # keys that make the draws for each purpose independent
MINE_CHUNK = 1 << 16  # paths mined per chunk
MINE_ROUNDS = 5  # rounds of N walks per entity at most, until it has N unique paths


@dataclass(frozen=True)
class Paths(Tensors):
    """Padded paths, K per entity, aligned at the focus column.

    `joined`: an incoming walk, the focus, an outgoing walk. `single`: the focus, then one walk,
    outgoing or incoming (`incoming_UK`).
    """

    tokens_UKT: Tensor  # int32; 0 where padded
    mask_UKT: Tensor  # False where padded
    focus: int  # column of the focus
    incoming_UK: Tensor  # True if a single walk follows incoming edges

    def positions(self, kind: Positions = "focused") -> Tensor:
        """Returns each token's position id, from 1, as (T) or (U, K, T).

        `focused` is the distance to the focus + 1, `absolute` counts from the path's first token.
        """
        columns_T = torch.arange(self.tokens_UKT.shape[-1], device=self.tokens_UKT.device)
        match kind:
            case "focused":
                return (columns_T - self.focus).abs() + 1
            case "absolute":
                first_UK = self.mask_UKT.int().argmax(-1)
                return (columns_T - first_UK[..., None] + 1) * self.mask_UKT
        raise ValueError(f"positions must be focused or absolute, got {kind!r}")

    def trim(self) -> Paths:
        """Returns the paths without columns that are padding in all of them."""
        used = self.mask_UKT.flatten(0, -2).any(0).nonzero().squeeze(1)
        first, last = (int(used[0]), int(used[-1])) if len(used) else (self.focus, self.focus)
        tokens_UKT, mask_UKT = (x[..., first : last + 1] for x in (self.tokens_UKT, self.mask_UKT))
        return Paths(tokens_UKT, mask_UKT, self.focus - first, self.incoming_UK)


def sample_paths(
    graph: Graph,
    entities_U: Tensor,
    n_paths: int,
    max_hops: int,
    *,
    seed: int | Tensor,
    form: Form = "joined",
    held_out: HeldOut | None = None,
    first_path: int = 0,
) -> Paths:
    """Samples n_paths paths per entity; path k depends only on the seed, the entity and k.

    The direction of a `single` walk is random, and switched if the entity has no edge in that
    direction. An entity without edges gets paths of one token. `first_path` is the first k, to
    continue an earlier call.
    """
    held_out_M = held_out.mask(graph.n_triples) if held_out else None
    numbers_K = torch.arange(first_path, first_path + n_paths, device=entities_U.device)
    starts_N = entities_U.repeat_interleave(n_paths)
    numbers_N = numbers_K.repeat(len(entities_U))
    width, focus = _layout(form, max_hops)
    tokens_NT = starts_N.new_full((len(starts_N), width), -1, dtype=torch.int32)
    tokens_NT[:, focus] = starts_N
    hops_N = starts_N.new_zeros(len(starts_N), dtype=torch.int32)
    states = [keyed(seed, starts_N.long(), numbers_N, way) for way in (OUT, IN)]
    incoming_N = torch.zeros_like(starts_N, dtype=torch.bool)

    if form == "joined":
        for adjacency, state_N, step in zip(
            (graph.outgoing, graph.incoming), states, (1, -1), strict=True
        ):
            walk(
                adjacency, tokens_NT, hops_N, state_N, max_hops,
                focus=focus, step=step, held_out_M=held_out_M,
            )  # fmt: skip
    else:
        incoming_N = draw(keyed(seed, starts_N.long(), numbers_N, COIN), 0) < 0
        for switch in (False, True):  # walks without an edge retry in the other direction
            stuck_N = hops_N == 0
            incoming_N = incoming_N ^ (stuck_N & switch)
            for adjacency, state_N, is_in in zip(
                (graph.outgoing, graph.incoming), states, (False, True), strict=True
            ):
                walk(
                    adjacency, tokens_NT, hops_N, state_N, max_hops,
                    wanted_N=stuck_N & (incoming_N == is_in), held_out_M=held_out_M,
                )  # fmt: skip
        incoming_N &= hops_N > 0  # a path of one token has no direction

    shape, mask_NT = (len(entities_U), n_paths), tokens_NT >= 0
    tokens_UKT = tokens_NT.clamp_(min=0).view(*shape, width)
    return Paths(tokens_UKT, mask_NT.view(*shape, width), focus, incoming_N.view(shape))


def _layout(form: Form, max_hops: int) -> tuple[int, int]:
    """Returns the width and the focus column of a path row."""
    match form:
        case "joined":
            return 4 * max_hops + 1, 2 * max_hops
        case "single":
            return 2 * max_hops + 1, 0
    raise ValueError(f"paths must be joined or single, got {form!r}")


def path_steps(paths: Paths, u: int, k: int) -> list[tuple[int, int, int]]:
    """Returns the edges of one path as (head, relation, tail) ids, in the order of the path."""
    tokens = paths.tokens_UKT[u, k][paths.mask_UKT[u, k]].tolist()
    if paths.incoming_UK[u, k]:
        tokens.reverse()
    return [(tokens[i], tokens[i + 1], tokens[i + 2]) for i in range(0, len(tokens) - 2, 2)]


@dataclass(frozen=True)
class PathStore(Tensors):
    """Up to N unique paths per entity, mined once before training (as in the paper)."""

    offsets_E1: Tensor  # int64: entity e owns paths offsets_E1[e] to offsets_E1[e + 1]
    tokens_PT: Tensor  # int32; -1 where padded
    incoming_P: Tensor
    focus: int
    most: int  # N, the most paths per entity

    def draw(self, entities_U: Tensor, n_paths: int, *, seed: int | Tensor) -> Paths:
        """Draws n_paths of each entity's paths, with repeats only if it has fewer."""
        starts_U = self.offsets_E1[entities_U.long()]
        counts_U = self.offsets_E1[entities_U.long() + 1] - starts_U
        order_C = torch.arange(self.most, device=starts_U.device)
        chance_UC = draw(keyed(seed, entities_U.long())[:, None], order_C)
        absent_UC = order_C >= counts_U[:, None]
        shuffled_UC = chance_UC.masked_fill(absent_UC, 2**63 - 1).argsort(1)
        wanted_K = torch.arange(n_paths, device=starts_U.device)
        pick_UK = shuffled_UC.gather(1, wanted_K % counts_U[:, None])
        chosen_UK = starts_U[:, None] + pick_UK
        tokens_UKT = self.tokens_PT[chosen_UK]
        incoming_UK = self.incoming_P[chosen_UK]
        return Paths(tokens_UKT.clamp(min=0), tokens_UKT >= 0, self.focus, incoming_UK)


def mine_paths(
    graph: Graph,
    n_paths: int,
    max_hops: int,
    *,
    seed: int,
    form: Form = "joined",
    entities_E: Tensor | None = None,
) -> PathStore:
    """Mines up to n_paths unique paths per entity, for all or for `entities_E` (the store's rows).

    Each entity gets at least one, and fewer than n_paths if MINE_ROUNDS rounds of n_paths walks
    find no more.
    """
    if n_paths < 1:
        raise ValueError(f"n_paths must be at least 1, got {n_paths}")
    if entities_E is None:
        entities_E = torch.arange(graph.n_entities, device=graph.device)
    per_chunk = max(MINE_CHUNK // n_paths, 1)
    mined = [_mine(graph, e, n_paths, max_hops, seed, form) for e in entities_E.split(per_chunk)]
    counts_E, tokens_PT, incoming_P = (torch.cat(parts) for parts in zip(*mined, strict=True))
    offsets_E1 = torch.cat([counts_E.new_zeros(1), counts_E.cumsum(0)])
    return PathStore(offsets_E1, tokens_PT, incoming_P, _layout(form, max_hops)[1], n_paths)


def _mine(
    graph: Graph, entities_U: Tensor, n_paths: int, max_hops: int, seed: int, form: Form
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns (counts_U, tokens_PT, incoming_P) of some entities, rows in entity order."""
    short_U = torch.arange(len(entities_U), device=entities_U.device)
    owner_P, codes_P, incoming_P = short_U[:0], short_U[:0], short_U[:0].bool()
    tokens_PT = short_U.new_empty((0, _layout(form, max_hops)[0]), dtype=torch.int32)
    for i in range(MINE_ROUNDS):
        paths = sample_paths(
            graph, entities_U[short_U], n_paths, max_hops,
            seed=seed, form=form, first_path=i * n_paths,
        )  # fmt: skip
        tokens_NT = paths.tokens_UKT.masked_fill(~paths.mask_UKT, -1).flatten(0, 1)
        codes_N = _path_codes(tokens_NT, paths.incoming_UK.flatten())
        owner_N = torch.cat([owner_P, short_U.repeat_interleave(n_paths)])
        tokens_NT = torch.cat([tokens_PT, tokens_NT])
        incoming_N = torch.cat([incoming_P, paths.incoming_UK.flatten()])
        codes_N = torch.cat([codes_P, codes_N])
        keep_N = _first_unique(owner_N, codes_N, n_paths)
        owner_P, tokens_PT = owner_N[keep_N], tokens_NT[keep_N]
        incoming_P, codes_P = incoming_N[keep_N], codes_N[keep_N]
        counts_U = torch.bincount(owner_P, minlength=len(entities_U))
        short_U = (counts_U < n_paths).nonzero().squeeze(1)
        if not len(short_U):
            break
    return counts_U, tokens_PT, incoming_P


def _path_codes(tokens_NT: Tensor, incoming_N: Tensor) -> Tensor:
    """Returns a 64-bit hash per path; equal paths have equal hashes."""
    code_N = incoming_N.long()
    for column in tokens_NT.unbind(1):
        code_N = mix(code_N * 31 + column + 1)
    return code_N


def _first_unique(owner_N: Tensor, codes_N: Tensor, n_paths: int) -> Tensor:
    """Returns the rows of each owner's first n_paths distinct codes, by owner, then row."""
    by_code = codes_N.argsort(stable=True)
    by_code = by_code[owner_N[by_code].argsort(stable=True)]  # owner, then code, then row
    owner, code = owner_N[by_code], codes_N[by_code]
    fresh = torch.ones_like(owner, dtype=torch.bool)
    fresh[1:] = (owner[1:] != owner[:-1]) | (code[1:] != code[:-1])
    rows = by_code[fresh].sort().values
    rows = rows[owner_N[rows].argsort(stable=True)]  # owner, then row
    counts = torch.bincount(owner_N[rows])
    starts = counts.cumsum(0) - counts
    return rows[torch.arange(len(rows), device=rows.device) - starts[owner_N[rows]] < n_paths]

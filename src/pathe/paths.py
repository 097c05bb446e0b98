"""Paths: walks laid out as token rows around the entity that they describe, the focus.

A path row is entity, relation, entity, ... with the focus in one fixed column, so columns at an
even distance from it are entities, the others relations, and a token's distance to the focus is
its column's. Incoming walks lie left of the focus and read towards it, outgoing ones to its right.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from pathe.graph import Graph, Tensors, with_both
from pathe.randomness import draw, keyed, mix
from pathe.walks import held_out_mask, walk

Form = Literal["joined", "single", "mixed"]
Positions = Literal["focused", "signed", "absolute"]
N_POSITIONS = 100  # that a model knows, as published; signed, the upper half is for incoming walks
OUT, IN, COIN = 0, 1, 2  # what a draw is for: keys of the random states
MINE_CHUNK = 1 << 16  # paths mined at once
MINE_ROUNDS = 5  # tries at an entity's missing unique paths: rounds of N paths each


@dataclass(frozen=True)
class Paths(Tensors):
    """Padded token paths: K for each of U entities, aligned at the focus column.

    `joined`: an incoming walk, the focus, an outgoing walk. `single`: focus first, one walk in
    either direction (`incoming_UK` says which), read outwards. `mixed`: focus first, one walk that
    takes each edge either way; relations from `turned_from` on are taken against their direction.
    """

    tokens_UKT: Tensor  # int32; 0 where masked
    mask_UKT: Tensor  # True where real
    focus: int  # column of the focus
    incoming_UK: Tensor  # True where a single walk follows edges backwards
    turned_from: int | None = None

    def positions(self, kind: Positions = "focused") -> Tensor:
        """Position of each token from 1 (T or UKT): distance to the focus + 1, or order in path.

        Signed, distances within incoming walks have positions of their own.
        """
        columns_T = torch.arange(self.tokens_UKT.shape[-1], device=self.tokens_UKT.device)
        match kind:
            case "focused":
                return (columns_T - self.focus).abs() + 1
            case "signed":
                after_T = columns_T - self.focus
                before_T = N_POSITIONS // 2 + after_T.abs()
                out_T = torch.where(after_T < 0, before_T, after_T + 1)
                if self.focus:  # a joined path
                    return out_T
                incoming_UKT = self.incoming_UK[..., None] & (after_T > 0)
                return torch.where(incoming_UKT, before_T, out_T)
            case "absolute":
                first_UK = self.mask_UKT.int().argmax(-1)
                return (columns_T - first_UK[..., None] + 1) * self.mask_UKT
        raise ValueError(f"positions are focused, signed or absolute, not {kind!r}")

    def trim(self) -> Paths:
        """Without the columns that are padding in every path."""
        used = self.mask_UKT.flatten(0, -2).any(0).nonzero().squeeze(1)
        first, last = (int(used[0]), int(used[-1])) if len(used) else (self.focus, self.focus)
        columns = slice(first, last + 1)
        return Paths(
            self.tokens_UKT[..., columns],
            self.mask_UKT[..., columns],
            self.focus - first,
            self.incoming_UK,
            self.turned_from,
        )


def sample_paths(
    graph: Graph,
    entities_U: Tensor,
    n_paths: int,
    max_hops: int,
    *,
    seed: int | Tensor,
    form: Form = "joined",
    held_out: Tensor | None = None,
    first_path: int = 0,
) -> Paths:
    """n_paths fresh paths for each entity; path k of an entity depends on the seed, it and k only.

    A single walk takes either direction with equal chance, the other one where that has no edge; a
    mixed one any edge of an entity at each hop. An entity without edges gets paths of one token.
    `first_path` continues an earlier call.
    """
    if held_out is not None:
        held_out = held_out_mask(graph.n_triples, held_out)
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
                focus=focus, step=step, held_out_M=held_out,
            )  # fmt: skip
    elif form == "mixed":
        both = with_both(graph).both
        assert both is not None
        walk(both, tokens_NT, hops_N, states[0], max_hops, held_out_M=held_out)
    else:
        incoming_N = draw(keyed(seed, starts_N.long(), numbers_N, COIN), 0) < 0
        for turn in (False, True):  # the drawn direction, then the other for what couldn't leave
            stuck_N = hops_N == 0
            incoming_N = incoming_N ^ (stuck_N & turn)
            for adjacency, state_N, is_in in zip(
                (graph.outgoing, graph.incoming), states, (False, True), strict=True
            ):
                walk(
                    adjacency, tokens_NT, hops_N, state_N, max_hops,
                    wanted_N=stuck_N & (incoming_N == is_in), held_out_M=held_out,
                )  # fmt: skip
        incoming_N &= hops_N > 0  # a path of one token has no direction

    shape = (len(entities_U), n_paths)
    mask_NT = tokens_NT >= 0
    return Paths(
        tokens_NT.clamp_(min=0).view(*shape, width),
        mask_NT.view(*shape, width),
        focus,
        incoming_N.view(shape),
        graph.n_relations if form == "mixed" else None,
    )


def _layout(form: Form, max_hops: int) -> tuple[int, int]:
    """(width, focus column) of a path row."""
    match form:
        case "joined":
            return 4 * max_hops + 1, 2 * max_hops
        case "single" | "mixed":
            return 2 * max_hops + 1, 0
    raise ValueError(f"paths are joined, single or mixed, not {form!r}")


def path_steps(paths: Paths, u: int, k: int) -> list[tuple[int, int, int]]:
    """The edges of one path as (head, relation, tail) ids, in reading order."""
    tokens = paths.tokens_UKT[u, k][paths.mask_UKT[u, k]].tolist()
    if paths.incoming_UK[u, k]:
        tokens.reverse()
    steps = [(tokens[i], tokens[i + 1], tokens[i + 2]) for i in range(0, len(tokens) - 2, 2)]
    n = paths.turned_from
    if n is None:
        return steps
    return [(h, r, t) if r < n else (t, r - n, h) for h, r, t in steps]


@dataclass(frozen=True)
class PathStore(Tensors):
    """Mined paths: up to N unique ones for each entity, fixed once drawn (the paper's form)."""

    offsets_E1: Tensor  # int64: entity e owns paths offsets_E1[e] to offsets_E1[e + 1]
    tokens_PT: Tensor  # int32; -1 where padded
    incoming_P: Tensor
    focus: int
    most: int  # N
    turned_from: int | None = None

    def draw(self, entities_U: Tensor, n_paths: int, *, seed: int | Tensor) -> Paths:
        """n_paths of each entity's own, without repeats as far as it has that many."""
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
        return Paths(
            tokens_UKT.clamp(min=0),
            tokens_UKT >= 0,
            self.focus,
            self.incoming_P[chosen_UK],
            self.turned_from,
        )


def mine_paths(
    graph: Graph,
    n_paths: int,
    max_hops: int,
    *,
    seed: int,
    form: Form = "joined",
    entities_E: Tensor | None = None,
) -> PathStore:
    """Up to n_paths unique paths for every entity (or those given, the store's rows then).

    Every entity has at least one; one with fewer unique paths than that after MINE_ROUNDS rounds of
    n_paths walks keeps what was found.
    """
    if n_paths < 1:
        raise ValueError(f"n_paths must be at least 1, got {n_paths}")
    if entities_E is None:
        entities_E = torch.arange(graph.n_entities, device=graph.device)
    if form == "mixed":
        graph = with_both(graph)
    per_chunk = max(MINE_CHUNK // n_paths, 1)
    mined = [_mine(graph, e, n_paths, max_hops, seed, form) for e in entities_E.split(per_chunk)]
    counts_E = torch.cat([m[0] for m in mined])
    tokens_PT = torch.cat([m[1] for m in mined])
    offsets_E1 = torch.cat([counts_E.new_zeros(1), counts_E.cumsum(0)])
    return PathStore(
        offsets_E1,
        tokens_PT,
        torch.cat([m[2] for m in mined]),
        _layout(form, max_hops)[1],
        n_paths,
        graph.n_relations if form == "mixed" else None,
    )


def _mine(
    graph: Graph, entities_U: Tensor, n_paths: int, max_hops: int, seed: int, form: Form
) -> tuple[Tensor, Tensor, Tensor]:
    """(counts_U, tokens_PT, incoming_P) of some entities, rows in entity order."""
    short_U = torch.arange(len(entities_U), device=entities_U.device)
    owner_P, codes_P, incoming_P = short_U[:0], short_U[:0], short_U[:0].bool()
    tokens_PT = short_U.new_empty((0, _layout(form, max_hops)[0]), dtype=torch.int32)
    for turn in range(MINE_ROUNDS):
        paths = sample_paths(
            graph, entities_U[short_U], n_paths, max_hops,
            seed=seed, form=form, first_path=turn * n_paths,
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
    """A 64-bit code for each path; equal paths have equal codes."""
    code_N = incoming_N.long()
    for column in tokens_NT.unbind(1):
        code_N = mix(code_N * 31 + column + 1)
    return code_N


def _first_unique(owner_N: Tensor, codes_N: Tensor, n_paths: int) -> Tensor:
    """Rows to keep: each owner's first n_paths distinct codes, in owner order, then row order."""
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

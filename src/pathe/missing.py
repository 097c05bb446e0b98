"""The most plausible triples that a graph lacks, scored a chunk at a time.

A triple is as plausible as its tail is among all tails of (head, relation) and its head among all
heads of (relation, tail): the geometric mean of both probabilities. Scores of different questions
can't be compared; docs/decisions/0006-using-a-model.md says how much better this measure does.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from pathe.bridging import bridge_links
from pathe.encoding import Describer, Progress
from pathe.graph import Contexts, Graph, known_answers, owners
from pathe.known import Side
from pathe.model import PathE

KEPT = 1 << 27  # scores


@torch.no_grad()
def most_plausible(
    model: PathE,
    z_E: Tensor,
    describe: Describer,
    known: Graph,
    relations: list[int],
    k: int,
    temperature: float,
    rows: int,
    progress: Progress | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """(triples_K3, scores_K, plausibilities_K), best first.

    Tried are, for each relation, all heads with all tails that it has in the graph, and no entity
    with itself unless the relation does so there. Never more than `rows` x entities scores are
    held, with bridges KEPT more.
    """
    graph = describe.graph
    heads_R = _by_relation(graph.out_contexts, graph.n_relations)
    tails_R = _by_relation(graph.in_contexts, graph.n_relations)
    sides: tuple[Side, Side] = ("tail", "head")
    candidates = {side: model.candidates(z_E, side) for side in sides}
    loops_R = _has_loops(graph)
    parts_R = {r: _parts(model, heads_R[r], tails_R[r]) for r in relations}
    total = sum(sum(map(len, p)) + len(p) * len(heads_R[r]) for r, p in parts_R.items())
    done = 0
    best_K3 = torch.empty((0, 3), dtype=torch.long, device=z_E.device)
    scores_K, plausible_K = z_E.new_empty(0), z_E.new_empty(0)

    def scored(fixed_N: Tensor, r: int, side: Side) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """(entities, open scores, their log-sum-exp), some entities at a time."""
        nonlocal done
        for some_B in fixed_N.split(rows):
            relations_B = torch.full_like(some_B, r)
            answers_BE = model.candidate_scores(z_E[some_B], relations_B, candidates[side], side)
            answers_BE = bridge_links(
                model, describe, answers_BE.float(), some_B, relations_B, side
            )
            ids_B3 = torch.stack([some_B, relations_B, some_B], 1)
            answers_BE[known_answers(known, ids_B3, side)] = float("-inf")
            yield some_B, answers_BE, (answers_BE / temperature).logsumexp(1)
            done += len(some_B)
            if progress:
                progress(done, total)

    for r, tails_N in ((r, tails_N) for r, parts in parts_R.items() for tails_N in parts):
        sums, back = [], []
        for _, answers_BE, lse_B in scored(tails_N, r, "head"):
            sums.append(lse_B)
            if model.bridge:  # asked for the head, the same triple has another score
                back.append(answers_BE[:, heads_R[r]])
        by_tail_N, done_heads = torch.cat(sums), 0
        for heads_B, answers_BE, by_head_B in scored(heads_R[r], r, "tail"):
            answers_BN = answers_BE[:, tails_N]
            if not loops_R[r]:
                answers_BN[heads_B[:, None] == tails_N] = float("-inf")
            both_BN = answers_BN
            if back:
                of_heads = slice(done_heads, done_heads + len(heads_B))
                both_BN = (answers_BN + torch.cat([b[:, of_heads] for b in back]).T) / 2
            done_heads += len(heads_B)
            log_BN = both_BN / temperature - (by_head_B[:, None] + by_tail_N) / 2
            log_BN[answers_BN.isneginf()] = float("-inf")  # known: where all are, sums are, too
            found = log_BN.flatten().topk(min(k, log_BN.numel()))
            row, column = found.indices // len(tails_N), found.indices % len(tails_N)
            new_N3 = torch.stack([heads_B[row], torch.full_like(row, r), tails_N[column]], 1)
            best_K3, scores_K, plausible_K = _merge(
                k,
                (best_K3, scores_K, plausible_K),
                (new_N3, answers_BN.flatten()[found.indices], found.values),
            )
    return best_K3, scores_K, plausible_K.exp().clamp(max=1)  # rounding aside, it never is more


def _parts(model: PathE, heads_N: Tensor, tails_N: Tensor) -> list[Tensor]:
    """The tails to try together: with bridges their scores as questions are kept, so not all."""
    if not len(tails_N):
        return []
    return list(tails_N.split(max(KEPT // len(heads_N), 1) if model.bridge else len(tails_N)))


def _by_relation(contexts: Contexts, n_relations: int) -> tuple[Tensor, ...]:
    """The entities that each relation touches in one direction."""
    order_P = contexts.relations_P.argsort(stable=True)
    counts_R = torch.bincount(contexts.relations_P, minlength=n_relations)
    groups: tuple[Tensor, ...] = owners(contexts.offsets_E1)[order_P].split(counts_R.tolist())
    return groups


def _has_loops(graph: Graph) -> list[bool]:
    """Whether each relation leads from some entity to itself."""
    edges = graph.outgoing
    loops_N = edges.relations_M[owners(edges.offsets_E1) == edges.neighbours_M]
    return [n > 0 for n in torch.bincount(loops_N, minlength=graph.n_relations).tolist()]


def _merge(
    k: int, old: tuple[Tensor, Tensor, Tensor], new: tuple[Tensor, Tensor, Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """The k best of both by the last of their columns, best first; known ones are none."""
    triples, scores, plausible = (torch.cat(pair) for pair in zip(old, new, strict=True))
    best = plausible.topk(min(k, int((~plausible.isneginf()).sum())))
    return triples[best.indices], scores[best.indices], best.values

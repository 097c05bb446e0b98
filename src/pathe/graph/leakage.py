"""Held-out triples that training gives away: repeated, or copied under another relation."""

from __future__ import annotations

from typing import Any

import torch

from pathe.graph.prepared import PreparedGraph

SURE = 0.8  # a relation gives another away if at least this share of its pairs have both,
SUPPORT = 5  # and this many pairs
TOLD = 0.05  # least share of copied or inverted test triples that is told
LARGEST = 5_000_000  # triples; in larger graphs only repeated triples are looked for
CHUNK = 1 << 18  # triples per chunk of the join


def leakage(prepared: PreparedGraph) -> dict[str, Any]:
    """Measures how far training gives the held-out triples away.

    `valid_in_train`, `test_in_train` and `test_in_valid` are numbers of triples; `copied` and
    `inverted` are shares of the test triples whose entities train links by another relation, from
    head to tail or from tail to head, that comes with the triple's own in nearly all of its pairs.
    They are None without test triples, and in very large graphs.
    """
    kg = prepared.kg
    train = prepared.known("train")
    found: dict[str, Any] = {
        "valid_in_train": int(train.contains(kg.valid.to(prepared.device)).sum()),
        "test_in_train": int(train.contains(kg.test.to(prepared.device)).sum()),
        "test_in_valid": int(prepared.known("valid").contains(kg.test.to(prepared.device)).sum()),
        "copied": None,
        "inverted": None,
    }
    small = sum(map(len, kg.splits.values())) <= LARGEST
    if len(kg.test) and small:
        found |= {"copied": _given_away(prepared, False), "inverted": _given_away(prepared, True)}
    return found


def warnings_of(prepared: PreparedGraph) -> list[str]:
    """Returns a sentence for each way in which training gives held-out triples away."""
    return sentences(leakage(prepared), {k: len(v) for k, v in prepared.kg.splits.items()})


def sentences(found: dict[str, Any], sizes: dict[str, int]) -> list[str]:
    """Says what was found; `sizes` are the numbers of triples per split."""
    said = []
    for split, other in (("test", "train"), ("valid", "train"), ("test", "valid")):
        if n := found[f"{split}_in_{other}"]:
            some = f"{n:,} of the {sizes[split]:,} {split} triples"
            means = "is chosen on them" if other == "valid" else "has seen them"
            said.append(
                f"LEAKAGE: {some} ({n / sizes[split]:.1%}) are also in {other}, so the model "
                f"{means}: {split} metrics are inflated."
            )
    ways = (("copied", "from head to tail"), ("inverted", "from tail to head"))
    for key, way in ways:
        if (share := found[key] or 0.0) >= TOLD:
            said.append(
                f"LEAKAGE: {share:.1%} of the test triples follow from another training relation "
                f"that links nearly the same pairs, {way}."
            )
    return said


def _given_away(prepared: PreparedGraph, reverse: bool) -> float:
    """Returns the share of test triples whose pair train links by a relation that implies it."""
    kg, n = prepared.kg, prepared.n_relations
    test_B3 = prepared.triples("test")
    asked_B3 = test_B3.flip(1) if reverse else test_B3
    rows_N, others_N = prepared.known("train").find(asked_B3, "relation")
    codes_N = others_N * n + test_B3[rows_N, 1]  # (the relation in train, the one of test)
    apart_N = others_N != test_B3[rows_N, 1]
    rows_N, codes_N = rows_N[apart_N], codes_N[apart_N]
    wanted_L = codes_N.unique()
    if not len(wanted_L):
        return 0.0
    every_M3 = torch.cat([*kg.splits.values()]).long().to(prepared.device)
    every_M3 = every_M3[torch.isin(every_M3[:, 1], wanted_L // n)]
    sizes_R = torch.bincount(every_M3[:, 1], minlength=n)
    shared_L = torch.zeros_like(wanted_L)
    known = prepared.known()
    for part_M3 in every_M3.split(CHUNK):
        of_K, linked_K = known.find(part_M3.flip(1) if reverse else part_M3, "relation")
        codes_K, counts_K = (part_M3[of_K, 1] * n + linked_K).unique(return_counts=True)
        places_K = torch.searchsorted(wanted_L, codes_K).clamp(max=len(wanted_L) - 1)
        hit_K = wanted_L[places_K] == codes_K
        shared_L.index_add_(0, places_K[hit_K], counts_K[hit_K])
    sure_L = (shared_L >= SURE * sizes_R[wanted_L // n]) & (shared_L >= SUPPORT)
    given_N = torch.isin(codes_N, wanted_L[sure_L])
    return len(rows_N[given_N].unique()) / len(kg.test)

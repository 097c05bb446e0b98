"""Statistics of a knowledge graph, as in the paper's appendix, and how well PathE suits it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from pathe.core.randomness import keyed, mix
from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.graph.adjacency import Adjacency, Graph, merge, owners
from pathe.graph.leakage import leakage, sentences
from pathe.graph.prepared import PreparedGraph, prepare
from pathe.graph.walks import sample_walks

Stats = dict[str, Any]
RULE_SHARE = 0.8  # least share of shared pairs for a symmetric, inverse or duplicate relation
PART_SHARE, PART_TRIPLES = 0.2, 5  # least share and number of triples for a partly symmetric one
REVERSE_SHARE = 0.2  # least share of test pairs linked in reverse for the verdict to mention it
RULE_CHUNK = 1 << 18  # triples per chunk of the join
ROUNDS = 3  # of Weisfeiler-Lehman refinement
HOPS, WALK_STARTS = 10, 20_000
REACH_PAIRS, REACH_WALKS, REACH_HOPS = 5_000, 64, 3
WORD, WORDS, WORD_SLOTS = 64, 20, 30_000_000  # exact reach: pairs per word, words, edges per hop
PERCENTILES = (5, 25, 50, 75, 95, 99)
LEFT_OUT = ("duplicates", "literals", "skipped", "unknown_relations")
GRADES = {"good": "well suited", "fair": "workable", "poor": "poorly suited"}
# (good if at least, poor if below). The paper's results are good on FB15k-237 (92 % distinct
# contexts, degree 37.5) and CoDEx-L (46 %, 14.1), poor on WN18RR (8 %, 4.3) and YAGO3-10 (20 %,
# 17.5).
CHECKS = {"distinct_contexts": (0.4, 0.2), "mean_degree": (10, 5), "effective_relations": (10, 5)}
NOTES = [
    "The paper's average degree (FB15k-237: 37.5, WN18RR: 4.28) is degree.mean: 2 x training "
    "triples / entities in train.",
    "The paper's share of unique contexts (92 %, 8 %) is contexts[0].distinct: distinct contexts "
    "(incoming and outgoing, with counts) per entity in train. The share of entities whose context "
    "no other entity has is lower (89 %, 5 %).",
]


def analyze(kg: KnowledgeGraph | PreparedGraph, *, seed: int = 0, top: int = 11) -> dict[str, Any]:
    """Returns statistics of the training graph and the held-out splits.

    Shares and means of empty sets are None.

    name      the graph's name, with its `fingerprint` and the `seed` of sampled walks and pairs
    counts    entities (all splits), entities_in_train, relations, relations_in_train, self_loops
              (train), triples / seen / unseen per split (seen: both entities occur in train), and
              what the reader dropped: duplicates, literals, skipped, unknown_relations
    degree    mean (in + out), max, percentiles (50: the median), mean_out, mean_in (over entities
              that have such edges), histogram: [{from, to, entities}], bins doubling in width
    relations top: [{relation, triples, share}], top_two_share, effective (exp of the entropy),
              one_tail, one_head: relations of which nearly every head has one tail, or vice versa
    contexts  [{round, alone, distinct}]: share of entities with a unique Weisfeiler-Lehman code,
              and distinct codes per entity; round 0 is the relational context
    leakage   overlap (triples of valid, test also in train); test_in_valid; symmetric, inverse and
              duplicate relations: [{relations, triples, shares}], where both shares are at least
              0.8 without self-loops, in all splits together, since a random split separates pairs;
              partly_symmetric: relations of which 0.2 to 0.8 of the triples are reversed, as in
              graphs that lack facts; test: shares of test triples whose pair train links
              (linked_same, linked_reverse), that are in train or follow from it by a symmetric,
              inverse or duplicate relation (leaked); given_away: shares of test triples that
              another relation of train gives away, in the same or the other direction (copied,
              inverted); warnings: sentences
    pairs     shares of train and valid triples whose entities another training triple links, in
              either direction
    walks     dead_ends: without_out, without_in, isolated (entities without a training triple);
              out and in: {mean_hops, hops: share of walks by length 0..10}; n_walks
    reach     split, pairs, visited (share of tails visited by 64 undirected 3-hop walks from the
              head), exact_pairs, within (share of tails within 1, 2, 3 hops); None without pairs
    inference counts of the GraIL inference graph, shared_entities, unseen_relations; or None
    verdict   grade, checks: [{check, value, good, poor, rating}], sentences
    notes     how these figures relate to the paper's
    """
    prepared = prepare(kg)
    kg, graph, degrees_E = prepared.kg, prepared.graph, prepared.graph.degrees_E
    result: Stats = {
        "name": kg.name,
        "fingerprint": kg.fingerprint(),
        "seed": seed,
        "counts": _counts(prepared),
        "degree": _degree(graph, degrees_E),
        "relations": _relations(prepared, top),
        "contexts": _contexts(graph, degrees_E, seed),
        "leakage": _leakage(prepared),
        "pairs": linked_pairs(kg),
        "walks": _walks(graph, degrees_E, seed),
        "reach": _reach(prepared, seed),
        "inference": _inference(kg),
    }
    return result | {"verdict": _verdict(result), "notes": [*NOTES]}


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _counts(prepared: PreparedGraph) -> Stats:
    kg, held = prepared.kg, {"valid": prepared.kg.valid, "test": prepared.kg.test}
    seen = {split: len(prepared.triples(split, "seen")) for split in held}
    return {
        "entities": kg.n_entities,
        "entities_in_train": int(prepared.seen_E.sum()),
        "relations": kg.n_relations,
        "relations_in_train": len(kg.train[:, 1].unique()),
        "triples": {"train": len(kg.train), "valid": len(kg.valid), "test": len(kg.test)},
        "seen": seen,
        "unseen": {split: len(held[split]) - n for split, n in seen.items()},
        "self_loops": int((kg.train[:, 0] == kg.train[:, 2]).sum()),
        **{k: getattr(kg.report, k) for k in LEFT_OUT},
    }


def _degree(graph: Graph, degrees_E: Tensor) -> Stats:
    values_U = degrees_E[degrees_E > 0].numpy()
    n, m = len(values_U), graph.n_triples
    levels = np.percentile(values_U, PERCENTILES).tolist() if n else [None] * len(PERCENTILES)
    bins = enumerate(np.bincount(np.log2(values_U).astype(np.int64)).tolist())
    return {
        "mean": _ratio(2 * m, n),
        "max": int(values_U.max()) if n else None,
        "percentiles": dict(zip(map(str, PERCENTILES), levels, strict=True)),
        "mean_out": _ratio(m, int((graph.outgoing.degrees_E > 0).sum())),
        "mean_in": _ratio(m, int((graph.incoming.degrees_E > 0).sum())),
        "histogram": [{"from": 1 << k, "to": (2 << k) - 1, "entities": c} for k, c in bins],
    }


def _relations(prepared: PreparedGraph, top: int) -> Stats:
    kg, functional = prepared.kg, prepared.functionality
    counts_R, order_R = torch.bincount(kg.train[:, 1]).sort(descending=True, stable=True)
    counts_R, m = counts_R[counts_R > 0], len(kg.train)
    shares_R = counts_R.double() / max(m, 1)
    first = zip(order_R[:top].tolist(), counts_R[:top].tolist(), strict=False)
    return {
        "top": [{"relation": kg.relations[r], "triples": n, "share": n / m} for r, n in first],
        "top_two_share": float(shares_R[:2].sum()) if m else None,
        "effective": float((-(shares_R * shares_R.log()).sum()).exp()) if m else None,
        "one_tail": kg.relations.names(functional["tail"].functional_R.nonzero().squeeze(1)),
        "one_head": kg.relations.names(functional["head"].functional_R.nonzero().squeeze(1)),
    }


def _contexts(graph: Graph, degrees_E: Tensor, seed: int) -> list[Stats]:
    """Counts distinct Weisfeiler-Lehman codes per round; in round 0, a code hashes the context."""
    edges = [(side, owners(side.offsets_E1)) for side in (graph.outgoing, graph.incoming)]
    words_WR = keyed(seed, torch.arange(2 * graph.n_relations)).view(2, -1)
    codes_E, rounds = torch.zeros(graph.n_entities, dtype=torch.int64), []
    for k in range(ROUNDS + 1):
        sums_E = torch.zeros_like(codes_E)
        for words_R, (side, owners_M) in zip(words_WR, edges, strict=True):
            codes_M = codes_E[side.neighbours_M] + words_R[side.relations_M]
            sums_E.index_add_(0, owners_M, mix(codes_M))
        codes_E = keyed(seed, codes_E, sums_E)
        sizes_C = codes_E[degrees_E > 0].unique(return_counts=True)[1]
        n, alone = int(sizes_C.sum()), int((sizes_C == 1).sum())
        rounds.append({"round": k, "alone": _ratio(alone, n), "distinct": _ratio(len(sizes_C), n)})
    return rounds


def _leakage(prepared: PreparedGraph) -> Stats:
    kg, train = prepared.kg, prepared.known("train")
    test_B3 = kg.test.long()
    leaked_B = torch.zeros(len(kg.test), dtype=torch.bool)
    rules, linked = {}, {}
    for direction, pairs_B3 in (("same", test_B3), ("reverse", test_B3.flip(1))):
        rules[direction], codes_L = _rules(prepared, direction == "reverse")
        rows_N, others_N = train.find(pairs_B3, "relation")
        follows_N = torch.isin(test_B3[rows_N, 1] * kg.n_relations + others_N, codes_L)
        leaked_B[rows_N[follows_N]] = True
        linked[f"linked_{direction}"] = _ratio(len(rows_N.unique()), len(kg.test))
    leaked_B |= train.contains(kg.test)
    found = leakage(prepared)
    symmetric = [rule for rule in rules["reverse"] if len(rule["relations"]) == 1]
    return {
        "overlap": {split: found[f"{split}_in_train"] for split in ("valid", "test")},
        "test_in_valid": found["test_in_valid"],
        "symmetric": [rule for rule in symmetric if rule["shares"][0] >= RULE_SHARE],
        "partly_symmetric": [rule for rule in symmetric if rule["shares"][0] < RULE_SHARE],
        "inverse": [rule for rule in rules["reverse"] if len(rule["relations"]) == 2],
        "duplicate": rules["same"],
        "test": linked | {"leaked": _ratio(int(leaked_B.sum()), len(kg.test))},
        "given_away": {key: found[key] for key in ("copied", "inverted")},
        "warnings": sentences(found, {k: len(v) for k, v in kg.splits.items()}),
    }


def linked_pairs(kg: KnowledgeGraph) -> Stats:
    """Returns the shares of train and valid triples whose entities another training triple links.

    `valid_expected` is how many valid triples the training share would give.
    """

    def codes(triples_M3: Tensor) -> Tensor:
        ends_M2 = triples_M3[:, [0, 2]].long().sort(1).values
        return ends_M2[:, 0] * kg.n_entities + ends_M2[:, 1]

    train_M, valid_M = codes(kg.train), codes(kg.valid)
    _, places_M, counts_P = train_M.unique(return_inverse=True, return_counts=True)
    twice = int((counts_P[places_M] > 1).sum())
    linked = int(torch.isin(valid_M, train_M).sum())
    shares = {"train": _ratio(twice, len(train_M)), "valid": _ratio(linked, len(valid_M))}
    return shares | {"valid_expected": (shares["train"] or 0.0) * len(valid_M)}


def wants_pairs_held_out(pairs: Stats) -> bool:
    """Whether training often links a pair twice, but rarely links the pairs of valid triples."""
    enough = pairs["valid_expected"] >= 5  # if fewer are expected, finding none may be chance
    return bool(enough and pairs["train"] > 0.05 and pairs["valid"] < pairs["train"] / 10)


def _rules(prepared: PreparedGraph, reverse: bool) -> tuple[list[Stats], Tensor]:
    """Returns pairs of relations that mostly link the same entities, and their codes r1 * R + r2.

    With `reverse`, from tail to head, where a relation may be paired with itself: it is then
    returned even if it is only partly symmetric, but without a code.
    """
    kg, known = prepared.kg, prepared.known()
    triples_M3 = torch.cat([*kg.splits.values()]).unique(dim=0).long()
    triples_M3 = triples_M3[triples_M3[:, 0] != triples_M3[:, 2]]
    sizes_R = torch.bincount(triples_M3[:, 1], minlength=kg.n_relations)
    found = []
    for part_M3 in triples_M3.split(RULE_CHUNK):
        rows_N, others_N = known.find(part_M3.flip(1) if reverse else part_M3, "relation")
        codes_N = part_M3[rows_N, 1] * kg.n_relations + others_N
        found.append(torch.stack(codes_N.unique(return_counts=True)))
    codes_N, counts_N = torch.cat(found, 1)
    codes_L, slots_N = codes_N.unique(return_inverse=True)
    shared_L = torch.zeros_like(codes_L).index_add_(0, slots_N, counts_N)
    pairs_L2 = torch.stack([codes_L // kg.n_relations, codes_L % kg.n_relations], 1)
    apart_L = pairs_L2.diff().squeeze(1)
    most_L = sizes_R[pairs_L2].amax(1).double()
    listed_L = (shared_L >= RULE_SHARE * most_L) & (reverse | (apart_L != 0))
    partly_L = (shared_L >= PART_SHARE * most_L) & (shared_L >= PART_TRIPLES)
    partly_L &= reverse & (apart_L == 0)
    rules = []
    for row in ((listed_L | partly_L) & (apart_L >= 0)).nonzero().squeeze(1).tolist():
        pair, shared = sorted(set(pairs_L2[row].tolist())), int(shared_L[row])
        names, sizes = [kg.relations[r] for r in pair], sizes_R[pair].tolist()
        rules.append({"relations": names, "triples": sizes, "shares": [shared / n for n in sizes]})
    return sorted(rules, key=lambda rule: -sum(rule["triples"])), codes_L[listed_L]


def _sample(values_N: Tensor, n: int, seed: int) -> Tensor:
    """Samples at most n rows, kept in order."""
    return values_N[keyed(seed, torch.arange(len(values_N))).argsort()[:n].sort().values]


def _walks(graph: Graph, degrees_E: Tensor, seed: int) -> Stats:
    starts_N = _sample((degrees_E > 0).nonzero().squeeze(1), WALK_STARTS, seed)
    n, dead_ends = len(starts_N), {"isolated": int((degrees_E == 0).sum())}
    result: Stats = {"n_walks": n, "dead_ends": dead_ends}
    for name, adjacency in (("out", graph.outgoing), ("in", graph.incoming)):
        dead_ends[f"without_{name}"] = int(((adjacency.degrees_E == 0) & (degrees_E > 0)).sum())
        hops_N = sample_walks(adjacency, starts_N, HOPS, seed=seed).hops_N
        shares = [_ratio(c, n) for c in torch.bincount(hops_N, minlength=HOPS + 1).tolist()]
        result[name] = {"mean_hops": _ratio(int(hops_N.sum()), n), "hops": shares}
    return result


def _reach(prepared: PreparedGraph, seed: int) -> Stats | None:
    """Samples held-out pairs of distinct entities seen in train: walks can't reach the others."""
    split = "test" if len(prepared.kg.test) else "valid"
    held_B3, graph = prepared.triples(split, "seen"), prepared.graph
    pairs_B2 = held_B3[held_B3[:, 0] != held_B3[:, 2]][:, [0, 2]]
    if not len(pairs_B2):
        return None
    both = merge(graph.outgoing, graph.incoming, graph.n_relations)
    pairs_B2 = _sample(pairs_B2, REACH_PAIRS, seed)
    starts_N, tails_N = pairs_B2.repeat_interleave(REACH_WALKS, 0).unbind(1)
    tokens_NT = sample_walks(both, starts_N, REACH_HOPS, seed=seed).tokens_NT
    met_B = (tokens_NT[:, 2::2] == tails_N[:, None]).any(1).view(-1, REACH_WALKS).any(1)
    n_words = min(WORDS, WORD_SLOTS // len(both.neighbours_M) + 1)
    exact_B2 = _sample(pairs_B2, n_words * WORD, seed)
    within_BH = torch.cat([_within(both, part_B2) for part_B2 in exact_B2.split(WORD)])
    exact = {"exact_pairs": len(exact_B2), "within": within_BH.double().mean(0).tolist()}
    return {"split": split, "pairs": len(pairs_B2), "visited": met_B.double().mean().item()} | exact


def _within(both: Adjacency, pairs_B2: Tensor) -> Tensor:
    """Whether each tail is within 1, 2, ... hops of its head, for up to 64 pairs (one bit each)."""
    live_U = both.degrees_E.nonzero().squeeze(1).numpy()
    starts_U, neighbours_M = both.offsets_E1[live_U].numpy(), both.neighbours_M.numpy()
    heads_B, tails_B = pairs_B2.numpy().T
    bits_B = np.uint64(1) << np.arange(len(pairs_B2), dtype=np.uint64)
    reached_E = np.zeros(len(both.degrees_E), dtype=np.uint64)
    np.bitwise_or.at(reached_E, heads_B, bits_B)
    hops = []
    for _ in range(REACH_HOPS):
        reached_E[live_U] |= np.bitwise_or.reduceat(reached_E[neighbours_M], starts_U)
        hops.append(torch.from_numpy(reached_E[tails_B] & bits_B != 0))
    return torch.stack(hops, 1)


def _inference(kg: KnowledgeGraph) -> Stats | None:
    if (other := kg.inference) is None:
        return None
    counts = _counts(prepare(other))
    shared = int((kg.entities.ids(other.entities.array, missing="mark") >= 0).sum())
    used_N = torch.cat([other.train, other.valid, other.test])[:, 1].unique()
    unseen = {*other.relations.names(used_N)} - {*kg.relations.names(kg.train[:, 1].unique())}
    return counts | {"shared_entities": shared, "unseen_relations": len(unseen)}


def _verdict(result: Stats) -> Stats:
    """Grades the graph: poor if contexts or two checks are poor, good if all are good."""
    counts, degree, relations = result["counts"], result["degree"], result["relations"]
    context, last = result["contexts"][0], result["contexts"][-1]
    if not (n := counts["entities_in_train"]):
        return {
            "grade": GRADES["poor"],
            "checks": [],
            "sentences": ["There are no training triples."],
        }
    values = (context["distinct"], degree["mean"], relations["effective"])
    checks = [
        {"check": name, "value": value, "good": good, "poor": poor, "rating": rating}
        for (name, (good, poor)), value in zip(CHECKS.items(), values, strict=True)
        for rating in ["good" if value >= good else "poor" if value < poor else "fair"]
    ]
    contexts, degrees, diversity = ratings = [check["rating"] for check in checks]
    bad = contexts == "poor" or ratings.count("poor") > 1
    grade = GRADES["poor" if bad else "good" if set(ratings) == {"good"} else "fair"]
    ends = result["walks"]["dead_ends"]
    said = [
        *result["leakage"]["warnings"],
        f"Relational diversity is {diversity}: {counts['relations_in_train']} relations, as "
        f"diverse as {relations['effective']:.1f} equally frequent ones; the two most frequent "
        f"make up {relations['top_two_share']:.0%} of the triples.",
        f"Connectivity is {degrees}: {degree['mean']:.1f} edges per entity; "
        f"{ends['without_out'] / n:.0%} of the entities have no outgoing edge and "
        f"{ends['without_in'] / n:.0%} no incoming edge, so their paths lack that half.",
        f"Contexts are {contexts} at telling entities apart: {context['distinct']:.0%} are "
        f"distinct, and {context['alone']:.0%} of the entities have a unique one; after {ROUNDS} "
        f"rounds of message passing, {last['distinct']:.0%} and {last['alone']:.0%}.",
    ]
    if contexts == "poor":
        said[-1] += (
            " Vectors alone will confuse entities; bridges and relation prediction can work well."
        )
    if unseen := sum(counts["unseen"].values()):
        have = "triples have" if unseen > 1 else "triple has"
        said.append(f"{unseen:,} held-out {have} an entity that doesn't occur in train.")
    test = result["leakage"]["test"]
    if leaked := test["leaked"]:
        said.append(
            f"{100 * leaked:.1f} % of the test triples are in train, or follow from it by a "
            "symmetric, inverse or duplicate relation."
        )
    if (reverse := test["linked_reverse"] or 0) > REVERSE_SHARE:
        said.append(
            f"{100 * reverse:.1f} % of the test pairs are linked in train from tail to head: a "
            "model may score well just by reversing these links."
        )
    if wants_pairs_held_out(pairs := result["pairs"]):
        said.append(
            f"{pairs['train']:.0%} of the training triples link a pair that another one links, but "
            f"only {pairs['valid']:.1%} of the valid ones: with bridges, set hold_out_pairs=true."
        )
    return {"grade": grade, "checks": checks, "sentences": said}

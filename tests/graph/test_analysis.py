"""Statistics against hand-made tables, brute force on random graphs and the paper's figures."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.graphs import graph_of_ids, kg_of, triple_lists

from pathe.graph import analysis
from pathe.graph.analysis import analyze

Rows = list[tuple[int, int, int]]


def test_counts() -> None:
    kg = kg_of("a r b; b r c; a s a", valid="a r c; x r a", test="c r y")
    assert analyze(kg)["counts"] == {
        "entities": 5,
        "entities_in_train": 3,
        "relations": 2,
        "relations_in_train": 2,
        "triples": {"train": 3, "valid": 2, "test": 1},
        "seen": {"valid": 1, "test": 0},
        "unseen": {"valid": 1, "test": 1},
        "self_loops": 1,
        "duplicates": 4,
        "literals": 3,
        "skipped": 2,
        "unknown_relations": 1,
    }


def test_degree_of_a_star() -> None:
    assert analyze(kg_of("a r b; a r c; a r d"))["degree"] == {
        "mean": 1.5,  # 2 x 3 triples / 4 entities
        "max": 3,
        "percentiles": pytest.approx({"5": 1, "25": 1, "50": 1, "75": 1.5, "95": 2.7, "99": 2.94}),
        "mean_out": 3,
        "mean_in": 1,
        "histogram": [{"from": 1, "to": 1, "entities": 3}, {"from": 2, "to": 3, "entities": 1}],
    }


def test_degree_bins_hold_every_entity_of_train() -> None:
    hub = "; ".join(f"h r t{i}" for i in range(8))
    bins = analyze(kg_of(hub))["degree"]["histogram"]
    assert [(b["from"], b["to"], b["entities"]) for b in bins] == [
        (1, 1, 8), (2, 3, 0), (4, 7, 0), (8, 15, 1),
    ]  # fmt: skip


def test_relations() -> None:
    kg = kg_of("a rare b; a common b; b common c; c common d", valid="a rare c")
    assert analyze(kg)["relations"] == {
        "top": [
            {"relation": "common", "triples": 3, "share": 0.75},
            {"relation": "rare", "triples": 1, "share": 0.25},
        ],
        "top_two_share": 1,
        "one_tail": [],
        "one_head": [],
        "effective": pytest.approx(math.exp(-0.75 * math.log(0.75) - 0.25 * math.log(0.25))),
    }
    assert [r["relation"] for r in analyze(kg, top=1)["relations"]["top"]] == ["common"]


def test_equally_frequent_relations_are_worth_their_number() -> None:
    assert analyze(kg_of("a r b; a s b; a t b; a u b"))["relations"]["effective"] == pytest.approx(
        4
    )


def test_contexts_of_a_chain() -> None:
    # b and c have the same context (one in, one out) and different neighbours.
    rounds = analyze(kg_of("a r b; b r c; c r d"))["contexts"]
    assert rounds[0] == {"round": 0, "alone": 0.5, "distinct": 0.75}
    assert rounds[1] == {"round": 1, "alone": 1, "distinct": 1}
    assert [r["round"] for r in rounds] == [0, 1, 2, 3]


def test_contexts_know_direction_and_counts() -> None:
    rounds = analyze(kg_of("a r b; c r d; c r e"))["contexts"]
    assert rounds[0] == {"round": 0, "alone": 2 / 5, "distinct": 3 / 5}  # a, c, {b, d, e}
    assert rounds[1] == {"round": 1, "alone": 3 / 5, "distinct": 4 / 5}  # a, c, b, {d, e}


@settings(max_examples=40, deadline=None)
@given(triple_lists(), st.integers(-5, 5))
def test_contexts_match_exact_refinement(drawn: tuple[Rows, int, int], seed: int) -> None:
    rows, n_entities, n_relations = drawn
    live = {e for h, _, t in rows for e in (h, t)}
    codes: dict[int, Any] = dict.fromkeys(live, 0)
    for got in analyze(graph_of_ids(rows, [], n_entities, n_relations), seed=seed)["contexts"]:
        codes = {
            e: (
                codes[e],
                tuple(sorted((r, codes[t]) for h, r, t in rows if h == e)),
                tuple(sorted((r, codes[h]) for h, r, t in rows if t == e)),
            )
            for e in live
        }
        ranks = {code: i for i, code in enumerate(sorted(set(codes.values())))}
        codes = {e: ranks[code] for e, code in codes.items()}
        sizes = Counter(codes.values())
        if live:
            assert got["distinct"] == len(sizes) / len(live)
            assert got["alone"] == sum(n == 1 for n in sizes.values()) / len(live)
        else:
            assert (got["distinct"], got["alone"]) == (None, None)


def test_symmetric_relations_from_four_in_five_on() -> None:
    leakage = analyze(
        kg_of(
            "a s b; b s a; c s d; e s f;"  # with the reverses in test, 6 of 7
            "a r b; b r a; c r d; i r j; k r l",  # 4 of 6
            test="f s e; d r c; d s c; b s d; a s b",
        )
    )["leakage"]
    assert leakage["symmetric"] == [{"relations": ["s"], "triples": [7], "shares": [6 / 7]}]
    assert leakage["partly_symmetric"] == []  # four reversed triples are too few to tell
    assert leakage["inverse"] == []
    assert leakage["duplicate"] == []
    assert leakage["overlap"] == {"valid": 0, "test": 1}  # a s b
    assert leakage["test"] == {
        "linked_reverse": 0.8,  # all but b s d
        "linked_same": 0.2,  # a s b
        "leaked": 0.6,  # f s e, d s c and a s b, whose reverse is in train; r isn't listed
    }


def test_a_symmetric_relation_is_found_however_it_is_split() -> None:
    """A random cut leaves few pairs whole: train alone would show 2 of 10."""
    pairs = [(f"a{i}", f"b{i}") for i in range(9)]
    forward, back = ([f"{h} s {t}" for h, t in side] for side in (pairs, [p[::-1] for p in pairs]))
    train = "; ".join([*forward, back[0], "a0 r b0"])
    split = analyze(kg_of(train, valid="; ".join(back[1:4]), test="; ".join(back[4:])))["leakage"]
    assert split["symmetric"] == [{"relations": ["s"], "triples": [18], "shares": [1]}]
    assert split["test"]["leaked"] == 1
    alone = analyze(kg_of("; ".join([*forward, *back[:4]])))["leakage"]
    assert alone["symmetric"] == []
    assert alone["partly_symmetric"] == [{"relations": ["s"], "triples": [13], "shares": [8 / 13]}]


def test_inverse_and_duplicate_pairs() -> None:
    leakage = analyze(
        kg_of(
            "a p b; c p d; e p f; g p h;  b q a; d q c; f q e; h q g; i q j;"  # 5 of 5, 5 of 6
            "k u l; m u n; s u t; x u y;  k v l; m v n; s v t; x v y;"
            "a w b",  # every w is a p, but few p are w
            valid="a p b",
            test="j p i; o q p; b u a; c v d; m w n",
        )
    )["leakage"]
    assert leakage["inverse"] == [
        {"relations": ["p", "q"], "triples": [5, 6], "shares": [1, 5 / 6]}
    ]
    assert leakage["duplicate"] == [
        {"relations": ["u", "v"], "triples": [5, 5], "shares": [0.8, 0.8]},
    ]
    assert leakage["symmetric"] == []
    assert leakage["overlap"] == {"valid": 1, "test": 0}
    assert leakage["test"]["leaked"] == 1 / 5  # j p i, from i q j
    assert leakage["test"]["linked_reverse"] == 3 / 5  # j p i; b u a (a p b); c v d (d q c)
    assert leakage["test"]["linked_same"] == 3 / 5  # b u a (b q a); c v d (c p d); m w n (m u n)


def test_duplicates_leak_too() -> None:
    kg = kg_of("a u b; c u d; e u f; g u h; i u j; a v b; c v d; e v f; g v h", test="i v j; j v i")
    leakage = analyze(kg)["leakage"]
    assert [rule["shares"] for rule in leakage["duplicate"]] == [[1, 5 / 6]]
    assert leakage["test"]["leaked"] == 0.5


def test_self_loops_make_no_rules() -> None:
    leakage = analyze(kg_of("a r a; b r b; a s a; b s b"))["leakage"]
    assert leakage["symmetric"] == leakage["inverse"] == leakage["duplicate"] == []


@settings(max_examples=40, deadline=None)
@given(triple_lists())
def test_rules_match_brute_force(drawn: tuple[Rows, int, int]) -> None:
    rows, n_entities, n_relations = drawn
    leakage = analyze(graph_of_ids(rows, [], n_entities, n_relations))["leakage"]
    plain = [(h, r, t) for h, r, t in rows if h != t]
    by_relation = {r: {(h, t) for h, s, t in plain if s == r} for r in range(n_relations)}

    def share(a: int, b: int, *, reverse: bool) -> float:
        pairs = {(t, h) for h, t in by_relation[a]} if reverse else by_relation[a]
        return len(pairs & by_relation[b]) / len(pairs) if pairs else 0

    def expected(*, reverse: bool) -> set[tuple[str, ...]]:
        return {
            tuple(sorted({f"r{a}", f"r{b}"}))
            for a in range(n_relations)
            for b in range(n_relations)
            if (reverse or a != b)
            and min(share(a, b, reverse=reverse), share(b, a, reverse=reverse)) >= 0.8
        }

    reverse = leakage["symmetric"] + leakage["inverse"]
    assert {tuple(rule["relations"]) for rule in reverse} == expected(reverse=True)
    assert {tuple(rule["relations"]) for rule in leakage["duplicate"]} == expected(reverse=False)


def test_rules_do_not_depend_on_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(i % 7, i % 3, i * i % 11) for i in range(60)] + [
        (i, 2, (i + 1) % 11) for i in range(11)
    ]
    kg = graph_of_ids(rows, rows[:5], 11, 3)
    whole = analyze(kg)["leakage"]
    monkeypatch.setattr(analysis, "RULE_CHUNK", 4)
    assert analyze(kg)["leakage"] == whole


def test_walks_of_a_chain() -> None:
    walks = analyze(kg_of("a r b; b r c", valid="x r a"))["walks"]
    third = [1 / 3] * 3 + [0.0] * 8  # from each end 0, 1 and 2 hops
    assert walks == {
        "n_walks": 3,
        "dead_ends": {"isolated": 1, "without_out": 1, "without_in": 1},
        "out": {"mean_hops": 1, "hops": third},
        "in": {"mean_hops": 1, "hops": third},
    }


def test_reach_walks_either_way() -> None:
    kg = kg_of("a r b; b r c; c r d; x r y", test="d r a; c r a; a r y; a r a; a r new")
    assert analyze(kg)["reach"] == {
        "split": "test",
        "pairs": 3,  # neither the self-loop nor the unseen entity
        "visited": pytest.approx(2 / 3),
        "exact_pairs": 3,
        "within": pytest.approx([0, 1 / 3, 2 / 3]),
    }


def test_reach_without_test_or_at_all() -> None:
    reach = analyze(kg_of("a r b", valid="b r a"))["reach"]
    assert (reach["split"], reach["pairs"], reach["within"]) == ("valid", 1, [1, 1, 1])
    assert analyze(kg_of("a r b"))["reach"] is None
    assert analyze(kg_of("a r b", test="x r y"))["reach"] is None


@settings(max_examples=40, deadline=None)
@given(triple_lists())
def test_distances_match_breadth_first_search(drawn: tuple[Rows, int, int]) -> None:
    rows, n_entities, n_relations = drawn
    live = sorted({e for h, _, t in rows for e in (h, t)})
    pairs = [(h, 0, t) for h in live for t in live if h != t]
    reach = analyze(graph_of_ids(rows, pairs, n_entities, n_relations))["reach"]
    near = {(h, t) for h, _, t in rows} | {(t, h) for h, _, t in rows}
    within = near | {(e, e) for e in live}
    for k in range(3):
        if pairs:
            hits = [(h, t) in within for h, _, t in pairs]
            assert reach["within"][k] == pytest.approx(sum(hits) / len(pairs))
        within = {(h, t) for h, m in within for n, t in near if m == n} | within
    if pairs:
        assert reach["visited"] <= reach["within"][2] + 1e-9


def test_inference_graph() -> None:
    inference = kg_of("a r m; m r n", test="m other n")
    result = analyze(kg_of("a r b; b s c", inference=inference))["inference"]
    assert (result["entities"], result["triples"]["train"], result["triples"]["test"]) == (3, 2, 1)
    assert (result["shared_entities"], result["unseen_relations"]) == (1, 1)
    assert analyze(kg_of("a r b"))["inference"] is None


def test_empty_graph() -> None:
    result = analyze(kg_of(""))
    assert result["degree"]["mean"] is None
    assert result["relations"] == {
        "top": [],
        "top_two_share": None,
        "effective": None,
        "one_tail": [],
        "one_head": [],
    }
    assert result["leakage"]["test"] == dict.fromkeys(("linked_same", "linked_reverse", "leaked"))
    assert result["walks"]["out"] == {"mean_hops": None, "hops": [None] * 11}
    assert result["verdict"]["grade"] == "poorly suited"


@pytest.mark.parametrize("train", ["", "a r b", "a r a", "a r b; b r a"])
def test_small_graphs_give_json(train: str) -> None:
    json.dumps(analyze(kg_of(train, valid="c r d", test="d r d")), allow_nan=False)
    json.dumps(analyze(kg_of(train)), allow_nan=False)


@settings(max_examples=30, deadline=None)
@given(triple_lists(), triple_lists(), st.integers(0, 2**70))
def test_any_graph_gives_the_same_json_twice(
    train: tuple[Rows, int, int], test: tuple[Rows, int, int], seed: int
) -> None:
    kg = graph_of_ids(train[0], test[0], 12, 4)
    first = json.dumps(analyze(kg, seed=seed), allow_nan=False)
    assert first == json.dumps(analyze(kg, seed=seed), allow_nan=False)


def test_verdict_states_its_thresholds() -> None:
    verdict = analyze(kg_of("a r b; b r c; c r d", valid="a r new", test="b r a"))["verdict"]
    ratings = {c["check"]: c["rating"] for c in verdict["checks"]}
    assert ratings == {
        "distinct_contexts": "good",
        "mean_degree": "poor",
        "effective_relations": "poor",
    }
    assert verdict["grade"] == "poorly suited"
    assert any("1 held-out triple has" in sentence for sentence in verdict["sentences"])
    # Contexts are good here: what pulls the grade down is said by its own sentence.
    assert not any("confuse" in sentence for sentence in verdict["sentences"])


def test_verdict_tells_of_leaks_as_the_table_does() -> None:
    train = "; ".join(f"a{i} r b{i}; b{i} r a{i}" for i in range(300)) + "; x r y; y s z"
    test = "; ".join(["y r x", *(f"a{i} s b{i + 1}" for i in range(199))])
    said = " ".join(analyze(kg_of(train, test=test))["verdict"]["sentences"])
    assert "0.5 % of the test triples are in train, or follow from it by a symmetric" in said
    assert "tail to head" not in said
    said = " ".join(analyze(kg_of("a r b; b s c", test="b s a"))["verdict"]["sentences"])
    assert "100.0 % of the test pairs are linked in train from tail to head" in said
    poor = analyze(kg_of("; ".join(f"a{i} r b" for i in range(20))))["verdict"]["sentences"]
    assert "Vectors alone will confuse" in next(
        s for s in poor if s.startswith("Contexts are poor")
    )


def test_pairs_that_train_links_twice_but_valid_never_want_holding_out() -> None:
    twice = "; ".join(f"a{i} r b{i}; b{i} s a{i}" for i in range(30)) + "; a0 r a1; a2 r a3"
    valid = "; ".join(f"a{i} r b{i + 1}" for i in range(6))
    pairs = analyze(kg_of(twice, valid=valid))
    expected = pytest.approx(6 * 60 / 62)
    assert pairs["pairs"] == {"train": 60 / 62, "valid": 0, "valid_expected": expected}
    said = " ".join(pairs["verdict"]["sentences"])
    assert "97% of the training triples" in said
    assert "0.0% of the valid ones: with bridges, set hold_out_pairs=true" in said
    linked = analyze(kg_of(twice, valid=valid + "; b0 t a0; b1 t a1"))
    assert linked["pairs"]["valid"] == 0.25
    few = analyze(kg_of(twice, valid="a0 r b1; a1 r b2"))  # by chance, it may be
    for found in (linked, few):
        assert "hold_out_pairs" not in " ".join(found["verdict"]["sentences"])
    nothing = {"train": 0, "valid": None, "valid_expected": 0}
    assert analyze(kg_of("a r b"))["pairs"] == nothing


def test_verdict_of_a_rich_graph() -> None:
    rows = [(h, (h * h + 3 * t) % 40, t) for h in range(30) for t in range(30) if (h ^ t) % 3]
    verdict = analyze(graph_of_ids(rows, [], 30, 40))["verdict"]
    assert verdict["grade"] == "well suited"


def test_train_is_left_as_it_was() -> None:
    kg = kg_of("a r b; b r a; c s c", test="a s b")
    before = kg.train.clone()
    analyze(kg)
    assert torch.equal(kg.train, before)


def test_relations_with_one_answer_are_named():
    born = "; ".join(f"p{i} born c{i % 3}" for i in range(9))
    found = analyze(kg_of(f"{born}; " + "; ".join(f"c{i} capital d{i}" for i in range(6))))
    assert found["relations"]["one_tail"] == ["born", "capital"]
    assert found["relations"]["one_head"] == ["capital"]

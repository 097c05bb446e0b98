"""Every kernel against its plain version: values, and gradients where there are any."""

from __future__ import annotations

import ast
import copy
import multiprocessing
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.graphs import graph_of, no_gpu, prepared_of, sorted_triples, triple_lists
from support.kernels import (
    FOLDERS,
    attention_example,
    backward,
    kernels_off,
    packed_example,
    packed_mask,
    scores_example,
    states_example,
    watched,
)
from support.propagation import example as propagation_example
from torch import Tensor

from pathe.graph import walks
from pathe.graph.adjacency import build_graph
from pathe.graph.edges import both_ways
from pathe.graph.held_out import HeldOut
from pathe.graph.known import KnownTriples
from pathe.graph.relation_graph import relation_graph
from pathe.graph.walks import sample_walks
from pathe.kernels import dispatch
from pathe.kernels.dispatch import KERNELS, compiled, kernel
from pathe.model import context_head
from pathe.model.attention import attend, attend_plain
from pathe.model.bridge import TableBridge
from pathe.model.context_head import ContextHead, entity_contexts
from pathe.model.dense import dense_scores
from pathe.model.frontier import Frontier, frontier_of
from pathe.model.packed import attend_among, attend_among_plain, pack
from pathe.model.propagation import propagate, propagate_plain, reach
from pathe.model.ranks import rank
from pathe.model.scores import relu_dot, relu_dot_plain
from pathe.model.states import WIDTHS, answer_scores, answer_scores_plain, update, update_plain
from pathe.predict.rules import count, count_plain

NAMES = {
    (device, f"{module}.{function}")
    for device, modules in KERNELS.items()
    for module, functions in modules.items()
    for function in functions
}


def check(ours: Callable[[], list[Tensor]], theirs: list[Tensor], atol: Any, rtol: float) -> None:
    """Compares in the precision of the plain results; the same call must give the same bits.

    atol: one number, a list with one for each result, or a function of the plain result.
    """
    found = ours()
    assert all(torch.equal(a, b) for a, b in zip(found, ours(), strict=True))
    for i, (mine, plain) in enumerate(zip(found, theirs, strict=True)):
        close = atol(plain) if callable(atol) else atol[i] if isinstance(atol, list) else atol
        torch.testing.assert_close(mine.to(plain.dtype), plain, atol=close, rtol=rtol)


def doubles(parts: list[Tensor]) -> list[Tensor]:
    return [part.double() if part.is_floating_point() else part for part in parts]


def check_attention(device: str, exact: bool = True, **shape: int) -> None:
    parts = attention_example(device=device, **shape)
    grads = [torch.randn_like(parts[0]), torch.randn_like(parts[4])]

    def run(how, parts, grads):
        query, keys, values, tokens, bias, keep = parts
        learned = [query, keys, values, bias]
        return backward(lambda q, k, v, b: how(q, k, v, tokens, b, keep), learned, grads)

    if exact:
        theirs, close = run(attend_plain, doubles(parts), doubles(grads)), (1e-5, 1e-5)
    else:
        theirs, close = run(attend_plain, parts, grads), (1e-3, 1e-4)
    check(lambda: run(attend, parts, grads), theirs, *close)


def check_scores(device: str, **shape: int) -> None:
    parts = scores_example(device=device, **shape)
    grads = [torch.randn(len(parts[0]), len(parts[1]), device=device)]
    theirs = backward(relu_dot_plain, doubles(parts), doubles(grads))
    check(lambda: backward(relu_dot, parts, grads), theirs, [1e-5, 1e-4, 1e-4, 1e-4], 1e-5)


def check_ranks(device: str) -> None:
    """With ties (repeated candidates), scores that are no numbers, and lists of any length."""

    @settings(max_examples=60, deadline=None)
    @given(
        st.integers(1, 70), st.integers(1, 300), st.integers(0, 2**31), st.booleans(), st.booleans()
    )
    def counted_ranks_equal_those_of_the_score_matrix(b, c, seed, repeats, broken):
        made = torch.Generator().manual_seed(seed)
        query, candidates, weight = (torch.randn(n, 6, generator=made) for n in (b, c, 1))
        if repeats:
            candidates = candidates[torch.randint(0, max(c // 4, 1), (c,), generator=made)]
        if broken:
            candidates[torch.rand(c, generator=made) < 0.2, 0] = float("nan")
        true = torch.randint(0, c, (b,), generator=made)
        listed = torch.rand(b, c, generator=made) < 0.3
        rows, columns = listed.nonzero(as_tuple=True)
        sizes = listed.sum(1)
        expected = rank(relu_dot(query, candidates, weight[0]), true, (rows, columns))
        tiled = compiled("scores.tiles", device)(candidates)
        better, equal, others = compiled("scores.rank", device)(
            query, tiled, weight[0], c, true,
            sizes.cumsum(0) - sizes, sizes, rows * c + columns, c,
        )  # fmt: skip
        assert torch.equal(1 + better, expected.optimistic_B)
        assert torch.equal(1 + better + equal, expected.pessimistic_B)
        assert torch.equal(1 + others, expected.candidates_B)

    counted_ranks_equal_those_of_the_score_matrix()


def check_propagation(device: str, n: int, dim: int = 6, hops: int = 2) -> None:
    _, edges, keep, reached, x, weights = propagation_example(
        n=n, device=device, dim=dim, hops=hops
    )
    made = torch.Generator().manual_seed(dim)
    grads = [torch.randn(reached.sizes[-1], dim, generator=made).to(device)]
    rest = edges, keep, reached, reached.sizes[-1]
    theirs = backward(propagate_plain, [x, weights], grads, *rest)
    check(lambda: backward(propagate, [x, weights], grads, *rest), theirs, [1e-5, 1e-4, 1e-4], 1e-4)


def check_dense(device: str, sources: list[int], dim: int, hops: int, n_entities: int = 30) -> None:
    """Scores of queries that reach most entities are those of the rows that they reach."""
    _, edges, keep, *_ = propagation_example(n_entities=n_entities, n=20 * n_entities)
    made = torch.Generator().manual_seed(dim)
    bridge = TableBridge(edges.n_relations, dim, hops)
    for part in bridge.parameters():
        part.data = torch.randn(part.shape, generator=made) / 4
    at, kinds = torch.tensor(sources), torch.arange(len(sources)) % (2 * edges.n_relations)
    with torch.no_grad():
        with kernels_off():
            theirs = copy.deepcopy(bridge).double().links(edges, keep, at, kinds)
        (asked, weights), takes = (
            bridge.condition(kinds, None),
            [h.take.weight for h in bridge.rounds],
        )
        parts = edges, keep, at, asked, weights, takes, bridge.link_head.layers(asked)
        found = dense_scores(*parts)
        assert found is not None
        check(lambda: [dense_scores(*parts)], [theirs], scaled(device), 0)
        torch.testing.assert_close(found, bridge.links(edges, keep, at, kinds))
        last = n_entities - 1  # it has no edges
        assert (found[at != last, last] == 0).all()


def check_reach(device: str, n: int) -> None:
    """Marking what lies next to some places: what is reached is what is reached on a CPU."""
    _, edges, keep, reached, *_ = propagation_example(n=n, device=device, hops=3)
    sources = torch.tensor([3, 0, 3, 29, 7])
    plain = reach(edges.to("cpu"), sources, 3, keep.cpu())
    assert reached.sizes == plain.sizes
    for name in ("row_BE", "queries_A", "entities_A"):
        assert torch.equal(getattr(reached, name).cpu(), getattr(plain, name)), name


def scaled(device: str) -> Callable[[Tensor], float]:
    share = 2e-3 if device == "cuda" else 1e-5  # TF32 on a GPU
    return lambda plain: share * float(plain.abs().max())


def check_update(device: str, n_before: int, n_after: int = 9000, dim: int = 16) -> None:
    """More rows than are updated at once, some of which had no state before."""
    made = torch.Generator().manual_seed(n_before)
    shapes = (n_before, dim), (n_after, dim), (dim, 2 * dim)
    parts = [torch.randn(*shape, generator=made).to(device) for shape in shapes]
    grads = [torch.randn(n_after, dim, generator=made).to(device)]
    theirs = backward(update_plain, parts, grads)
    check(lambda: backward(update, parts, grads), theirs, scaled(device), 0)


def check_states(device: str, dim: int, **shape: int) -> None:
    reached = propagation_example(device=device, dim=dim, **shape)[3]
    if "n_entities" in shape:  # more rows than a GPU's programs take in one round
        assert int((reached.row_BE >= 0).sum(1).max()) > 64 * 8
    updating, scoring = states_example(reached, dim)
    made = torch.Generator().manual_seed(1)
    arrived, shown = reached.sizes[-1], reached.row_BE.shape
    grads = [torch.randn(arrived, dim, generator=made).to(device)]
    theirs = backward(update_plain, updating, grads)
    check(lambda: backward(update, updating, grads), theirs, scaled(device), 0)
    grads = [torch.randn(shown, generator=made).to(device)]
    theirs = backward(answer_scores_plain, scoring, grads, reached)
    check(lambda: backward(answer_scores, scoring, grads, reached), theirs, scaled(device), 0)


def check_packed(device: str, single: bool, **shape: int) -> None:
    mask = packed_mask(device=device)
    parts, asking = packed_example(mask, single=single, **shape)
    grads = [torch.randn_like(parts[0])]
    rest = asking, pack(mask)
    theirs = backward(attend_among_plain, doubles(parts), doubles(grads), *rest)
    check(lambda: backward(attend_among, parts, grads, *rest), theirs, 5e-3, 5e-3)  # TF32


def check_walks(device: str) -> None:
    """Token for token, whatever the chunks of the plain version are."""

    @settings(max_examples=100, deadline=None)
    @given(triple_lists(), st.integers(1, 6), st.integers(), st.booleans())
    def walks_are_those_of_the_plain_version(data, max_hops, seed, leave_out):
        graph = graph_of(*data)
        starts = torch.arange(graph.n_entities).repeat(7)
        held_out = HeldOut(ids_B=torch.arange(0, graph.n_triples, 3)) if leave_out else None
        fast = sample_walks(
            graph.to(device).outgoing, starts.to(device), max_hops, seed=seed,
            held_out=None if held_out is None else held_out.to(device),
        )  # fmt: skip
        with kernels_off(), pytest.MonkeyPatch.context() as patch:
            patch.setattr(walks, "CHUNK", 16)
            plain = sample_walks(graph.outgoing, starts, max_hops, seed=seed, held_out=held_out)
        assert torch.equal(fast.tokens_NT.cpu(), plain.tokens_NT)
        assert torch.equal(fast.hops_N.cpu(), plain.hops_N)

    walks_are_those_of_the_plain_version()


def check_contexts(device: str) -> None:
    """Scores of all entities, with a vector for each and without."""
    prepared = prepared_of([(i % 9, i % 5, i * 7 % 11) for i in range(60)], 12, 5)
    seen = entity_contexts(prepared.arrivals, prepared.edges.keep()).to(device)
    head = ContextHead(6, 8).to(device)
    vectors, kinds = torch.randn(2, 10, 6, device=device), torch.tensor([3, 7], device=device)
    rows, sources = torch.tensor([1, 0, 1], device=device), torch.tensor([2, 4, 5], device=device)
    parts = seen, vectors, kinds, rows, sources
    with torch.no_grad(), pytest.MonkeyPatch.context() as patch:
        expected = head.links(*parts)
        patch.setitem(context_head.AT_ONCE, "cpu", 64)
        torch.testing.assert_close(head.links(*parts), expected, atol=1e-5, rtol=1e-4)
        with kernels_off():
            torch.testing.assert_close(head.links(*parts), expected, atol=1e-5, rtol=1e-4)


def check_frontier(device: str, most: int) -> None:
    """The entities that a frontier keeps, and their edges, number for number."""
    _, edges, keep, *_ = propagation_example(n=200, device=device)
    sources = torch.tensor([3, 0, 29, 7], device=device)
    levels = torch.randint(4, (4, edges.n_entities), generator=torch.Generator().manual_seed(most))
    for context in (None, levels.float().to(device)):  # many are equal
        frontier = Frontier(most, context_BE=context)
        found = frontier_of(edges, keep, sources, 3, frontier)
        with kernels_off():
            plain = frontier_of(edges, keep, sources, 3, frontier)
        for one, other in zip(found.tensors(), plain.tensors(), strict=True):
            assert torch.equal(one, other)


def check_meetings(device: str) -> None:
    """How kinds of edges meet."""
    prepared = prepared_of([(i % 9, i % 5, i * 7 % 11) for i in range(60)], 11, 5)
    index, keep = prepared.arrivals.to(device), prepared.edges.keep().to(device)
    found = relation_graph(index, keep)
    with kernels_off():
        assert torch.equal(found, relation_graph(index, keep))


def check_known(device: str) -> None:
    """Which values are listed, and closing them, for keys with and without a list."""

    @settings(max_examples=40, deadline=None)
    @given(triple_lists(), st.sampled_from(["head", "relation", "tail"]), st.booleans())
    def listed_and_closed_are_those_of_the_plain_version(data, part, shared):
        rows, n_entities, _ = data
        triples = torch.tensor(rows, dtype=torch.int64).view(-1, 3).to(device)
        lists, keys = KnownTriples(triples[::2]).answers(triples, part)
        values = torch.arange(n_entities, device=device).flip(0)
        given_values = values if shared else values.expand(len(triples), -1)
        plain = lists.listed_plain(keys[:, None], values[None])
        assert torch.equal(lists.listed(keys, given_values), plain)
        every = torch.ones(len(triples), max(n_entities, 4), dtype=torch.bool, device=device)
        closed = lists.close(every, keys)
        assert torch.equal(closed[:, :n_entities], ~plain.flip(1))

    listed_and_closed_are_those_of_the_plain_version()


def check_rules(device: str, kinds: tuple[int, ...]) -> None:
    made = torch.Generator().manual_seed(len(kinds))
    facts = (torch.rand(150, 3, generator=made) * torch.tensor([40, 3, 40])).long().tolist()
    edges = both_ways(build_graph(sorted_triples(facts), 40, 3)).to(device)
    for relation in range(3):
        found = count(edges, kinds, relation)
        assert found == count_plain(edges, kinds, relation)
        assert found[1] > 0


ATTENTION, PACKED, PROPAGATION = (check_attention,), (check_packed,), (check_propagation,)
SCORES, RANKS, STATES, ANSWERS = (
    (check_scores,),
    (check_ranks,),
    (check_states, check_update),
    (check_states,),
)
# The checks that hold each kernel to its plain version.
CHECKS: dict[tuple[str, str], tuple[Callable[..., None], ...]] = {
    ("cpu", "attention.read"): ATTENTION,
    ("cpu", "attention.read_backward"): ATTENTION,
    ("cpu", "dense.runs"): (check_dense,),
    ("cpu", "dense.near"): (check_dense,),
    ("cpu", "dense.answer_scores"): (check_dense,),
    ("cpu", "contexts.scores"): (check_contexts,),
    ("cpu", "frontier.spread_mass"): (check_frontier,),
    ("cpu", "frontier.edges_between"): (check_frontier,),
    ("cpu", "frontier.top"): (check_frontier,),
    ("cpu", "frontier.unkept"): (check_frontier,),
    ("cpu", "known.listed"): (check_known,),
    ("cpu", "propagation.propagate"): PROPAGATION,
    ("cpu", "propagation.propagate_weights"): PROPAGATION,
    ("cpu", "relation_graph.pairs"): (check_meetings,),
    ("cpu", "rules.count"): (check_rules,),
    ("cpu", "scores.relu_dot"): SCORES,
    ("cpu", "scores.open_sums"): SCORES,
    ("cpu", "scores.tiles"): RANKS,
    ("cpu", "scores.rank"): RANKS,
    ("cpu", "states.update"): STATES,
    ("cpu", "states.update_backward"): STATES,
    ("cpu", "states.answer_scores"): ANSWERS,
    ("cpu", "states.answer_scores_backward"): ANSWERS,
    ("cpu", "walks.walk"): (check_walks,),
    ("cuda", "attention.read"): ATTENTION,
    ("cuda", "attention.read_backward"): ATTENTION,
    ("cuda", "known.close"): (check_known,),
    ("cuda", "packed.read"): PACKED,
    ("cuda", "packed.read_backward"): PACKED,
    ("cuda", "propagation.propagate"): PROPAGATION,
    ("cuda", "propagation.propagate_weights"): PROPAGATION,
    ("cuda", "propagation.mark"): (check_reach,),
    ("cuda", "scores.relu_dot"): SCORES,
    ("cuda", "scores.open_sums"): SCORES,
    ("cuda", "states.update"): STATES,
    ("cuda", "states.update_backward"): STATES,
    ("cuda", "states.answer_scores"): ANSWERS,
    ("cuda", "states.answer_scores_backward"): ANSWERS,
    ("cuda", "walks.walk"): (check_walks,),
}
SHAPES: dict[Callable[..., None], list[dict[str, Any]]] = {
    check_attention: [
        {}, {"tokens": 1}, {"heads": 1, "size": 4}, {"n": 1}, {"n": 300}, {"n": 500},
        {"n": 3000, "rows": 5, "exact": False},  # two rows of the table, 6,000 times each
    ],
    check_dense: [
        {"sources": [3], "dim": 32, "hops": 3}, {"sources": [3], "dim": 64, "hops": 6},
        {"sources": [3, 0, 3, 29, 7], "dim": 32, "hops": 4},
        {"sources": [*range(0, 200, 7)], "dim": 64, "hops": 6, "n_entities": 200},
    ],
    check_contexts: [{}],
    check_frontier: [{"most": most} for most in (1, 5, 20, 30)],
    check_known: [{}],
    check_meetings: [{}],
    check_packed: [
        {"single": single, **more}
        for single in (False, True)
        for more in ({}, {"heads": 1, "size": 24}, {"heads": 4, "size": 32})
    ],
    check_propagation: [
        *({"n": n} for n in (0, 1, 40, 120, 600)), {"n": 90, "dim": 32}, {"n": 90, "dim": 40},
    ],
    check_ranks: [{}],
    check_reach: [{"n": n} for n in (0, 25, 60)],
    check_rules: [{"kinds": kinds} for kinds in ((0,), (1, 4), (2, 0, 5), (3, 3, 1, 2))],
    check_scores: [
        {}, {"c": 1}, {"b": 1}, {"b": 70, "c": 129}, *({"dim": n} for n in (1, 2, 3, 5, 7, 64)),
    ],
    check_states: [
        *({"n": 600, "dim": dim} for dim in (6, 16, 32, 64)),
        {"n_entities": 1300, "n": 9000, "hops": 4, "dim": 16},  # a query with very many rows
    ],
    check_update: [{"n_before": n} for n in (5, 8192, 8300, 9000)],
    check_walks: [{}],
}  # fmt: skip


def cases() -> Iterator[Any]:
    """(device, the kernels that a check covers there, the check, its arguments)."""
    for device in KERNELS:
        for how, shapes in SHAPES.items():
            names = [name for (d, name), checks in CHECKS.items() if d == device and how in checks]
            marks = [no_gpu] if device == "cuda" else []
            for shape in shapes if names else ():
                if device == "cuda" and how is check_states and shape["dim"] not in WIDTHS:
                    continue
                words = [device, how.__name__.removeprefix("check_")]
                words += [f"{key}={value}" for key, value in shape.items()]
                yield pytest.param(device, names, how, shape, id=" ".join(words), marks=marks)


@pytest.mark.parametrize(("device", "names", "how", "shape"), list(cases()))
def test_a_kernel_gives_what_its_plain_version_gives(device, names, how, shape):
    with watched(device, names) as called:
        how(device, **shape)
    assert called == set(names), "not compared, since it was never called"


def test_every_kernel_is_checked():
    assert CHECKS.keys() == NAMES
    assert {how for checks in CHECKS.values() for how in checks} == SHAPES.keys()


@pytest.mark.parametrize("device", KERNELS)
def test_every_kernel_is_there(device):
    """Read from the files, since Triton is not installed everywhere."""
    folder = Path(dispatch.__file__).parent / FOLDERS[device]
    for module, functions in KERNELS[device].items():
        tree = ast.parse((folder / f"{module}.py").read_text(encoding="utf-8"))
        found = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert set(functions) <= found
        public = {name for name in found if not name.startswith("_")}
        assert public == set(functions), "a function that nothing can ask for"
    files = {path.stem for path in folder.glob("*.py")} - {"__init__", "rows"}
    assert files == KERNELS[device].keys()


def test_kernels_are_loaded_on_a_cpu():
    for device, name in NAMES:
        if device == "cpu":
            assert kernel(name, "cpu") is not None, name
    assert kernel("scores.rank", "cuda") is None  # there is none
    assert kernel("nothing.here", "cpu") is None
    assert kernel("scores.rank", "meta") is None
    with pytest.raises(RuntimeError, match=r"scores\.rank"):
        compiled("scores.rank", "cuda")


def test_without_kernels_the_plain_versions_serve():
    parts = attention_example()
    attended, scored = attend(*parts), relu_dot(*scores_example())
    with kernels_off():
        assert kernel("attention.read", "cpu") is None
        for ours, theirs in zip(attended, attend(*parts), strict=True):
            torch.testing.assert_close(ours, theirs)
        torch.testing.assert_close(scored, relu_dot(*scores_example()))
        with torch.no_grad():
            torch.testing.assert_close(scored, relu_dot(*scores_example()))
    assert kernel("attention.read", "cpu") is not None


def walk_in_child(graph, queue):
    torch.set_num_threads(1)
    off = all(kernel(name, device) is None for device, name in NAMES)
    walked = sample_walks(graph.outgoing, torch.arange(3), 2, seed=0).tokens_NT.tolist()
    queue.put((off, walked))


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # what this test is about
def test_kernels_are_off_in_a_forked_process():
    """Numba's threads don't survive a fork; the plain versions give the same there."""
    graph = graph_of([(0, 0, 1), (1, 0, 2), (0, 0, 2)])
    here = sample_walks(graph.outgoing, torch.arange(3), 2, seed=0).tokens_NT.tolist()
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=walk_in_child, args=(graph, queue))
    child.start()
    child.join(60)
    assert child.exitcode == 0
    assert queue.get() == (True, here)
    assert kernel("walks.walk", "cpu") is not None  # and still on here


def test_threads_run_one_kernel_at_a_time(monkeypatch):
    """Two threads must not use numba's thread pool at once."""
    from pathe.kernels.cpu import scores

    running, most = 0, []

    def slow(x: Tensor) -> Tensor:
        nonlocal running
        running += 1
        most.append(running)
        time.sleep(0.01)
        running -= 1
        return x

    monkeypatch.setattr(scores, "tiles", slow)
    kernel.cache_clear()
    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(compiled("scores.tiles", "cpu"), [torch.zeros(1)] * 8))
    finally:
        kernel.cache_clear()
    assert most == [1] * 8


def test_threads_walk_the_same():
    graph = graph_of([(0, 0, 1), (1, 0, 2), (0, 0, 2)])
    here = sample_walks(graph.outgoing, torch.arange(3), 2, seed=0).tokens_NT.tolist()
    with ThreadPoolExecutor(4) as pool:
        jobs = [
            pool.submit(sample_walks, graph.outgoing, torch.arange(3), 2, seed=0) for _ in range(20)
        ]
        assert all(job.result().tokens_NT.tolist() == here for job in jobs)


@no_gpu
def test_a_gpu_closes_long_lists_and_walks_large_graphs_the_same():
    triples = torch.randint(0, 300, (5000, 3), generator=torch.Generator().manual_seed(0))
    triples[:, 1] %= 2
    for part in ("head", "tail"):
        lists, keys = KnownTriples(triples).answers(triples, part)
        every = torch.ones(len(triples), 300, dtype=torch.bool)
        there = lists.to("cuda").close(every.cuda(), keys.cuda())
        assert torch.equal(there.cpu(), lists.close(every, keys))
    graph = graph_of([(i, j % 3, (i * j + 1) % 90) for i in range(90) for j in range(1, 9)])
    starts = torch.arange(90).repeat(30)
    held_out = HeldOut(ids_B=torch.arange(0, graph.n_triples, 5))
    cpu = sample_walks(graph.incoming, starts, 6, seed=2, held_out=held_out)
    gpu = sample_walks(
        graph.to("cuda").incoming, starts.cuda(), 6, seed=2, held_out=held_out.to("cuda")
    )
    assert torch.equal(cpu.tokens_NT, gpu.tokens_NT.cpu())


@no_gpu
def test_dropout_on_a_gpu_is_seeded_and_its_gradients_fit():
    mask = packed_mask(n=30, longest=17, device="cuda")
    parts, asking = packed_example(mask)
    packing = pack(mask)
    runs = []
    for _ in range(2):
        torch.manual_seed(4)
        grads = [torch.ones_like(parts[0])]
        runs.append(backward(attend_among, parts, grads, asking, packing, 0.3))
    assert all(torch.equal(a, b) for a, b in zip(*runs, strict=True))
    # the output is linear in the values, so their gradient is what was kept of the weights
    read, *_, grad_value = runs[0]
    total = (grad_value * parts[2]).sum()
    torch.testing.assert_close(total, read.sum(), atol=0.05, rtol=1e-3)
    draws = []
    for seed in range(1500):
        torch.manual_seed(seed)
        draws.append(attend_among(*parts, asking, packing, 0.3))
    exact = attend_among(*parts, asking, packing)
    torch.testing.assert_close(torch.stack(draws).mean(0), exact, atol=0.15, rtol=0)

from __future__ import annotations

import pytest
import torch
from support.graphs import prepared_of
from torch import nn

from pathe.core.config import configure, preset_names, read_preset
from pathe.model import featurizer
from pathe.model.builder import build_model, paper_count
from pathe.model.encoder import EncoderLayer, PathEncoder, dropout
from pathe.model.featurizer import Featurizer, encode
from pathe.model.pathe import PathE, count_parameters
from pathe.model.projector import Bag, ContextLinear

ROWS = [(i, (i + j) % 5, (i * j + 1) % 30) for i in range(30) for j in range(1, 6)]
AGGREGATORS = ["mean", "lstm", "transformer", "transformer-joint"]


def small(aggregator: str = "transformer", **more) -> PathE:
    settings = {"dim": 16, "feedforward": 24, "layers": 2, "aggregator_layers": 2, "task": "multi"}
    model = build_model(configure(settings=settings | {"aggregator": aggregator, **more}), 5).eval()
    torch.manual_seed(0)
    for p in model.parameters():  # zeros and ones at the start hide mistakes
        nn.init.normal_(p, std=0.3)
    return model


def features(rows=ROWS, **more) -> Featurizer:
    settings = {"n_paths": 3, "max_hops": 3, "form": "joined", "positions": "focused", **more}
    return Featurizer(prepared_of(rows, 30, 5), **settings)


def test_sparse_contexts_equal_the_dense_layer():
    layer = ContextLinear(6, 4, log_counts=True, dropout=0.0)
    dense = torch.tensor([[0, 2, 0, 0, 1, 0], [0, 0, 0, 0, 0, 0], [3, 0, 0, 7, 0, 1.0]])
    rows, columns = dense.nonzero(as_tuple=True)
    offsets = torch.tensor([0, 2, 2, 5])
    found = layer(Bag(offsets, columns, dense[rows, columns]))
    torch.testing.assert_close(found, dense.log1p() @ layer.weight + layer.bias)


def oracle(encoder: PathEncoder, dim: int, feedforward: int) -> nn.TransformerEncoder:
    """PyTorch's own encoder with the same weights: every token through every layer."""
    layers = list(encoder.layers)
    layer = nn.TransformerEncoderLayer(
        dim, layers[0].n_heads, feedforward, 0.0, activation="relu", batch_first=True
    )
    plain = nn.TransformerEncoder(layer, len(layers), norm=nn.LayerNorm(dim)).eval()
    for theirs, ours in zip(plain.layers, layers, strict=True):
        parts = (ours.query, ours.key, ours.value)
        theirs.self_attn.in_proj_weight.data = torch.cat([p.weight.data for p in parts])
        theirs.self_attn.in_proj_bias.data = torch.cat([p.bias.data for p in parts])
        for name, part in (
            ("self_attn.out_proj", ours.out),
            ("linear1", ours.up),
            ("linear2", ours.down),
            ("norm1", ours.norm_1),
            ("norm2", ours.norm_2),
        ):
            theirs.get_submodule(name).load_state_dict(part.state_dict())
    plain.norm.load_state_dict(encoder.norm.state_dict())
    return plain


@pytest.mark.parametrize("n_layers", [1, 2, 3])
@pytest.mark.parametrize("positions", ["focused", "absolute"])
def test_the_path_encoder_equals_a_plain_transformer_at_the_focus(n_layers, positions):
    model = small(layers=n_layers)
    batch = features(positions=positions).batch(torch.arange(30), seed=1)
    table = torch.cat([model.projector(*batch.contexts), model.relations.weight])
    tokens = batch.tokens_UKT.flatten(0, 1)
    mask = tokens >= 0
    places = batch.positions.expand_as(batch.tokens_UKT).flatten(0, 1)
    given = batch.positions if positions == "focused" else places
    found = model.encoder(model.encoder.table(table), tokens, given, batch.focus)
    with torch.no_grad():
        x = table[tokens.clamp(min=0)] + model.encoder.positions.weight[places.clamp(min=1) - 1]
        plain = oracle(model.encoder, 16, 24)(x, src_key_padding_mask=~mask)[:, batch.focus]
    torch.testing.assert_close(found, plain, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("aggregator", AGGREGATORS)
@pytest.mark.parametrize("side", ["head", "tail"])
def test_pair_scores_equal_candidate_scores(aggregator, side):
    model = small(aggregator)
    z = encode(model, features(), torch.arange(30), seed=0)
    heads, relations, tails = (
        torch.tensor([0, 3, 7]),
        torch.tensor([1, 4, 2]),
        torch.tensor([5, 5, 9]),
    )
    pairs = model.link_scores(z[heads], relations, z[tails])
    fixed, answers = (tails, heads) if side == "head" else (heads, tails)
    head = model.head
    candidates, query = head.candidates(z, side), head.query(z[fixed], relations, side)
    every = head.score_all(query, candidates)
    assert every.shape == (3, 30)
    torch.testing.assert_close(every[torch.arange(3), answers], pairs)
    picks = torch.stack([answers, torch.tensor([1, 2, 3])], 1)
    some = head.score(query, candidates[picks])
    torch.testing.assert_close(some, every.gather(1, picks))


def test_the_link_head_is_the_papers_formula():
    model = small("mean")
    head = model.link_head
    h, t, r = torch.randn(4, 16), torch.randn(4, 16), torch.tensor([0, 1, 2, 3])
    whole = torch.cat([h, head.relations(r), t], -1)
    expected = head.second(torch.relu(head.first(whole))).squeeze(-1)
    torch.testing.assert_close(model.link_scores(h, r, t), expected)


@pytest.mark.parametrize("aggregator", AGGREGATORS)
def test_an_entitys_vector_depends_on_nothing_beside_it(aggregator):
    model, how = small(aggregator), features()
    everyone = encode(model, how, torch.arange(30), seed=4)
    for some in (torch.tensor([7]), torch.tensor([29, 7, 7, 0])):
        torch.testing.assert_close(encode(model, how, some, seed=4), everyone[some])
    torch.testing.assert_close(encode(model, how, torch.arange(30), seed=4, chunk=7), everyone)


def test_a_table_of_all_entities_and_one_of_each_chunk_give_the_same(monkeypatch):
    model, how = small(), features()
    once = encode(model, how, torch.arange(30), seed=4, chunk=7)
    monkeypatch.setattr(featurizer, "TABLE_BYTES", 0)
    torch.testing.assert_close(encode(model, how, torch.arange(30), seed=4, chunk=7), once)


@pytest.mark.parametrize("n_layers", [1, 2])
def test_no_entities_have_no_vectors(n_layers):
    nothing = torch.arange(0)
    assert encode(small("mean", layers=n_layers), features(), nothing, seed=0).shape == (0, 16)


def test_padding_changes_nothing():
    model, how = small(), features(max_hops=6)
    batch = how.batch(torch.arange(30), seed=0)
    z = model.encode(batch)
    wide = {
        "tokens_UKT": nn.functional.pad(batch.tokens_UKT, (4, 6), value=-1),
        "positions": nn.functional.pad(batch.positions, (4, 6)),
    }
    padded = type(batch)(batch.contexts, focus=batch.focus + 4, **wide)
    torch.testing.assert_close(model.encode(padded), z)


def test_relabelling_entities_changes_no_score():
    """Same graph under other ids, same paths under other ids: the same vectors."""
    model = small()
    renamed = torch.randperm(30, generator=torch.Generator().manual_seed(3))
    rows = sorted(set(ROWS))
    other = [(int(renamed[h]), r, int(renamed[t])) for h, r, t in rows]
    here, there = features(rows), features(other)
    batch = here.batch(torch.arange(30), seed=0)
    expected = model.encode(batch)
    moved = there.batch(renamed, seed=0)  # contexts of the renamed graph, in its own order
    is_entity = (batch.tokens_UKT >= 0) & (batch.tokens_UKT < 30)
    safe = batch.tokens_UKT.clamp(0, 29).long()
    tokens = torch.where(is_entity, renamed[safe].int(), batch.tokens_UKT)
    again = type(batch)(moved.contexts, tokens, batch.positions, batch.focus)
    torch.testing.assert_close(model.encode(again), expected)


@pytest.mark.parametrize(
    ("preset", "n_relations", "expected"),
    [
        ("paper-fb15k237-link", 237, 210_734),
        ("paper-fb15k237-link-no-aggregator", 237, 185_454),
        ("paper-codexl-link", 69, 679_494),
        ("paper-wn18rr-relation", 11, 46_924),
        ("paper-wn18rr-link", 11, 634_892),
        ("paper-yago310-link", 37, 208_934),
        ("paper-fb15k237-relation", 237, 168_942),
    ],
)
def test_parameter_counts_are_the_published_ones(preset, n_relations, expected):
    config = read_preset(preset)
    assert paper_count(config, n_relations) == expected
    # ours has no spare relations, and only the head of its task
    model = build_model(config, n_relations)
    d, r = config.dim, n_relations
    spare = 3 * 2 * d
    link, relation = r * d + 3 * d * d + 2 * d + 1, 2 * d * r + r
    unused = relation if config.task == "link" else link
    assert count_parameters(model) == expected - spare - unused


@pytest.mark.parametrize("preset", preset_names())
def test_every_preset_builds_and_learns(preset):
    config = read_preset(preset)
    model = build_model(config, 5)
    how = features(n_paths=config.n_paths, max_hops=2, form=config.path_form)
    z = model.encode(how.batch(torch.arange(8), seed=0))
    loss = z.square().sum()
    loss.backward()
    for name, p in model.named_parameters():
        if "head" not in name.split(".")[0]:
            assert p.grad is not None, name
            assert torch.isfinite(p.grad).all(), name


def test_an_entity_without_edges_has_a_vector():
    how = Featurizer(prepared_of([(0, 0, 1), (1, 4, 2)], 4, 5), n_paths=2, max_hops=3)
    z = encode(small(), how, torch.tensor([3]), seed=0)
    assert torch.isfinite(z).all()


def test_fewer_queries_than_keys_is_the_same_attention():
    torch.manual_seed(0)
    layer = EncoderLayer(8, 2, 12, 0.0).eval()
    x, mask = torch.randn(3, 5, 8), torch.tensor([[1, 1, 1, 0, 0]] * 3).bool()
    whole = layer(x, layer.key(x), layer.value(x), mask)
    one = layer(x[:, 1:2], layer.key(x), layer.value(x), mask)
    torch.testing.assert_close(one, whole[:, 1:2])


def test_dropout_keeps_the_right_share_and_the_mean():
    torch.manual_seed(0)
    x = torch.ones(999, 101, requires_grad=True)
    for p in (0.1, 0.5, 0.8):
        out = dropout(x, p, training=True)
        kept = out > 0
        assert float(kept.float().mean()) == pytest.approx(1 - p, abs=0.01)
        torch.testing.assert_close(out[kept], torch.full_like(out[kept], 1 / (1 - p)))
        by_column = kept.float().mean(0)
        assert float((by_column - (1 - p)).abs().max()) < 0.08
        (gradient,) = torch.autograd.grad(out.sum(), x)
        assert torch.equal(gradient > 0, kept)
    assert dropout(x, 0.5, training=False) is x
    torch.manual_seed(3)
    first = dropout(x, 0.5, training=True)
    torch.manual_seed(3)
    assert torch.equal(first, dropout(x, 0.5, training=True))

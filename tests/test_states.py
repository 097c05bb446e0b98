"""What bridges do with states, compiled against written out."""

from __future__ import annotations

import pytest
import torch
from graphs import DEVICES, no_gpu
from test_propagation import example

from pathe.states import answer_scores, answer_scores_plain, settle, settle_plain
from pathe.twins import twin


def parts_of(device: str, dim: int, n: int = 600):
    """Settle's inputs, those of answer_scores, and what is reached."""
    _, _, _, reached, _, _ = example(n=n, device=device, dim=dim)
    made = torch.Generator().manual_seed(dim)

    def some(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=made).to(device)

    n_before, n_after = reached.sizes[-2:]
    arrived = some(n_after, dim) * some(n_after, 1).exp()
    arrived[::3] = 0
    settling = some(n_before, dim), arrived, some(dim, 2 * dim)
    scoring = some(n_after, dim), some(5, 2 * dim), some(2 * dim, dim), some(1, 2 * dim)
    return settling, scoring, reached


def gradients(how, parts, *rest):
    learned = [part.clone().requires_grad_() for part in parts]
    found = how(*learned, *rest)
    weights = torch.randn(found.shape, generator=torch.Generator().manual_seed(1))
    (found * weights.to(found.device)).sum().backward()
    return found, *(part.grad for part in learned)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dim", [6, 16, 32, 64])
def test_compiled_is_plain(device, dim):
    assert twin("states", device)
    settling, scoring, reached = parts_of(device, dim)
    close = 2e-3 if device == "cuda" else 1e-5
    pairs = [
        (gradients(settle, settling), gradients(settle_plain, settling)),
        (
            gradients(answer_scores, scoring, reached),
            gradients(answer_scores_plain, scoring, reached),
        ),
    ]
    for ours, theirs in pairs:
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b, atol=close * float(b.abs().max()), rtol=0)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("n_before", [5, 8192, 8300, 9000])
def test_many_rows_settle_as_few_do(device, n_before):
    """More than are settled at once, some of which were nothing before."""
    made = torch.Generator().manual_seed(n_before)
    parts = [torch.randn(*shape, generator=made).to(device)
             for shape in ((n_before, 16), (9000, 16), (16, 32))]  # fmt: skip
    for ours, theirs in zip(gradients(settle, parts), gradients(settle_plain, parts), strict=True):
        close = (2e-3 if device == "cuda" else 1e-5) * float(theirs.detach().abs().max())
        torch.testing.assert_close(ours, theirs, atol=close, rtol=0)


@pytest.mark.parametrize("device", DEVICES)
def test_a_question_with_many_rows_gives_all_its_evidence(device):
    """More rows than a GPU's programs take in one round."""
    _, _, _, reached, _, _ = example(n_entities=1300, n=9000, device=device, hops=4)
    assert int((reached.row_BE >= 0).sum(1).max()) > 64 * 8
    made = torch.Generator().manual_seed(1)
    shapes = ((reached.sizes[-1], 16), (5, 32), (32, 16), (1, 32))
    parts = [torch.randn(*shape, generator=made).to(device) for shape in shapes]
    both = (gradients(how, parts, reached) for how in (answer_scores, answer_scores_plain))
    for ours, theirs in zip(*both, strict=True):
        close = (2e-3 if device == "cuda" else 1e-5) * float(theirs.detach().abs().max())
        torch.testing.assert_close(ours, theirs, atol=close, rtol=0)


@no_gpu
def test_a_gpu_has_the_kernels_and_gives_the_same_bits():
    assert twin("states", "cuda")
    settling, scoring, reached = parts_of("cuda", 32)
    for parts, how, rest in ((settling, settle, ()), (scoring, answer_scores, (reached,))):
        for a, b in zip(gradients(how, parts, *rest), gradients(how, parts, *rest), strict=True):
            assert torch.equal(a, b)


def test_what_is_nothing_stays_nothing():
    settling, scoring, reached = parts_of("cpu", 16)
    assert not settle(*(0 * part for part in settling[:2]), settling[2]).any()
    assert not answer_scores(0 * scoring[0], *scoring[1:], reached).any()


def test_what_arrives_keeps_its_direction_and_the_logarithm_of_its_size():
    """One number, by hand: 3 arrives at a state of 2; relu(1 * 2 + 10 * log(1 + 3))."""
    found = settle(torch.tensor([[2.0]]), torch.tensor([[3.0]]), torch.tensor([[1.0, 10.0]]))
    expected = 2 + 2 + 10 * torch.tensor(4.0).log()
    torch.testing.assert_close(found, expected.view(1, 1))


@pytest.mark.parametrize("device", DEVICES)
def test_what_is_no_number_stays_none(device):
    settling, scoring, reached = parts_of(device, 16)
    weights = settling[2].clone()
    weights[0, 0] = float("nan")
    assert settle(*settling[:2], weights).isnan().any()
    asked = scoring[1].clone()
    asked[0, 0] = float("nan")
    assert answer_scores(scoring[0], asked, *scoring[2:], reached).isnan().any()

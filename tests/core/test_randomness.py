from __future__ import annotations

import torch

from pathe.core.randomness import below, draw, keyed, name_keys, seed_torch


def test_states_depend_on_every_key_and_on_nothing_else():
    keys = torch.arange(1000)
    whole = keyed(7, keys, 3)
    assert torch.equal(whole[200:300], keyed(7, keys[200:300], 3))
    for other in (keyed(8, keys, 3), keyed(7, keys, 4), keyed(7, keys + 1000, 3)):
        assert not (whole == other).any()
    assert torch.equal(keyed(7 + 2**64, keys), keyed(7, keys))  # any int is a seed
    assert torch.equal(keyed(7, keys.int(), 3), whole)  # and any width of key the same


def test_draws_are_uniform():
    bits = draw(keyed(0, torch.arange(70_000)), 5)
    counts = torch.bincount(below(bits, 7), minlength=7)
    assert (counts - 10_000).abs().max() < 500  # over five standard deviations


def test_successive_draws_of_one_state_differ():
    state = keyed(0, torch.tensor([1]))
    numbers = {int(draw(state, i)) for i in range(1000)}
    assert len(numbers) == 1000
    assert int(draw(state, torch.tensor(3))) == int(draw(state, 3))


def test_keys_of_names_are_fixed_and_differ():
    names = ["", "a", "Österreich", "\udc80", *(f"e{i}" for i in range(1000))]
    keys = name_keys(names)
    assert len(keys.unique()) == len(names)
    assert torch.equal(name_keys(names[::-1]), keys.flip(0))
    assert keys[1] == 3405396810240292928  # BLAKE2b, 8 bytes, little endian
    assert name_keys([]).shape == (0,)


def test_torch_is_seeded_as_by_its_own_function():
    for seed in (0, 5, -3, 2**63 - 1):
        torch.manual_seed(seed)
        expected = torch.rand(3)
        seed_torch(seed, torch.device("cpu"))
        assert torch.equal(torch.rand(3), expected)

from __future__ import annotations

import torch
from support.graphs import sorted_triples

from pathe.graph.held_out import by_pair


def test_pairs_are_found_in_either_direction():
    triples = sorted_triples([(0, 0, 1), (1, 2, 0), (0, 1, 2), (3, 0, 3), (2, 1, 3)])
    found = by_pair(triples, 4)
    here = {tuple(row): i for i, row in enumerate(triples.tolist())}
    same = found.of_same(torch.tensor([here[0, 0, 1], here[3, 0, 3]])).tolist()
    assert sorted(same) == sorted([here[0, 0, 1], here[1, 2, 0], here[3, 0, 3]])
    flags = found.flag_same(torch.tensor([here[0, 0, 1], here[3, 0, 3]]))
    assert flags.nonzero().squeeze(1).tolist() == sorted(same)

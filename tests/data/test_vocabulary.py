from __future__ import annotations

import pytest
import torch

from pathe.core.errors import UnknownNameError
from pathe.data.vocabulary import GrowingVocabulary, Vocabulary


def test_names_grow_and_old_ids_stay():
    names = GrowingVocabulary(Vocabulary(["a", "b", "d"]))
    assert names.add("b") == 1
    assert names.add("c") == 3
    assert names.add("c") == 3
    assert names.add("A") == 4
    assert len(names) == 5
    assert [names[i] for i in range(5)] == ["a", "b", "d", "c", "A"]
    assert names.names(torch.tensor([3, 0])) == ["c", "a"]
    assert names.ids(["A", "d", "c"]).tolist() == [4, 2, 3]
    assert "c" in names
    assert "x" not in names
    with pytest.raises(UnknownNameError):
        names.ids(["a", "x"])


def test_without_additions_it_is_the_vocabulary():
    names = GrowingVocabulary(Vocabulary(["a", "b"]))
    assert names.ids(["b", "a"]).tolist() == [1, 0]
    assert names.names(torch.tensor([1])) == ["b"]
    with pytest.raises(UnknownNameError, match="unknown entity 'q'"):
        names.id("q")


def test_a_few_names_are_found_as_many_are():
    names = Vocabulary([f"n{i}" for i in range(50)])
    every = list(names)
    ids = names.ids(every)
    assert [int(names.ids([name])) for name in every] == ids.tolist()
    assert names.ids(["n3", "gone"], missing="mark").tolist() == [int(names.id("n3")), -1]
    with pytest.raises(UnknownNameError, match="unknown entity 'gone'"):
        names.ids(["n3", "gone"])

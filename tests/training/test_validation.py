"""The validation score has a name that says what it measures."""

from __future__ import annotations

import pytest

from pathe.core.config import configure
from pathe.training.learner import validation_title


@pytest.mark.parametrize(
    ("settings", "title"),
    [
        ({}, "validation MRR among 99 negatives"),
        ({"valid_negatives": 0}, "validation MRR"),
        ({"task": "relation"}, "validation MRR of relations"),
        (
            {"task": "multi", "valid_negatives": 50},
            "mean of validation MRR of links among 50 negatives and of relations",
        ),
        (
            {"task": "multi", "valid_negatives": 0},
            "mean of validation MRR of links and of relations",
        ),
    ],
)
def test_titles(settings: dict[str, object], title: str) -> None:
    assert validation_title(configure(settings=settings)) == title

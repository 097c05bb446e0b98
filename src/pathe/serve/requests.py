"""What requests may hold, and how much of it."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from pathe.core.types import Fact, Part
from pathe.serve.journal import Changes

MOST_NAME, MOST_K, MOST_DEPTH, MOST_ROWS = 2000, 1000, 10_000, 1000
MOST_LEFT_OUT, MOST_STEPS = 50, 16  # patterns or paths to leave out, and steps of each
Name = Annotated[str, StringConstraints(min_length=1, max_length=MOST_NAME)]
Given = Annotated[Name | None, Query()]  # one that may be left out
K = Annotated[int, Query(ge=1, le=MOST_K)]
Format = Literal["json", "csv", "ttl"]
Text = Annotated[str, Query(max_length=MOST_NAME)]
Overlay = Annotated[str, Query(max_length=64)]
Offset = Annotated[int, Query(ge=0, le=MOST_DEPTH)]


class Strict(BaseModel):
    """A request's body: unknown keys are errors."""

    model_config = ConfigDict(extra="forbid")


class Triple(Strict):
    head: Name
    relation: Name
    tail: Name

    @property
    def fact(self) -> Fact:
        return self.head, self.relation, self.tail


class OneQuery(Strict):
    head: Name | None = None
    relation: Name | None = None
    tail: Name | None = None


class Queries(Strict):
    queries: Annotated[list[OneQuery], Field(min_length=1, max_length=MOST_ROWS)]
    k: int = Field(10, ge=1, le=MOST_K)
    offset: int = Field(0, ge=0, le=MOST_DEPTH)
    known: bool = False
    type: Name | None = None
    plausible: bool = True


class Triples(Strict):
    triples: Annotated[list[Triple], Field(min_length=1, max_length=MOST_ROWS)]
    asked: Part | None = None


class Claims(Strict):
    triples: Annotated[list[Triple], Field(min_length=1, max_length=MOST_ROWS)]


Pattern = Annotated[list[Name], Field(min_length=1, max_length=MOST_STEPS)]
Steps = Annotated[list[tuple[Name, Name, Name]], Field(min_length=1, max_length=MOST_STEPS)]


class LeftOut(Strict):
    patterns: Annotated[list[Pattern], Field(max_length=MOST_LEFT_OUT)] = []
    paths: Annotated[list[Steps], Field(max_length=MOST_LEFT_OUT)] = []


class Rescore(Triple):
    asked: Part | None = None
    without: LeftOut = LeftOut()


class Facts(Strict):
    add: Annotated[list[Triple], Field(max_length=MOST_ROWS)] = []
    remove: Annotated[list[Triple], Field(max_length=MOST_ROWS)] = []

    @property
    def changes(self) -> Changes:
        return Changes([t.fact for t in self.add], [t.fact for t in self.remove])

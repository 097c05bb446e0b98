"""A graph of people, places, works and clubs, made by rules: the reason of each fact is known."""

from __future__ import annotations

import random
from dataclasses import dataclass

Fact = tuple[str, str, str]

# what follows from what; ^ before a relation that is followed backwards
RULES: dict[str, list[str]] = {
    "nationality": ["born_in", "located_in"],
    "capital_of": ["^seated_in", "^governed_by"],
    "in_language": ["written_by", "speaks"],
    "wrote": ["^written_by"],
    "grandchild_of": ["child_of", "child_of"],
    "licensed_by": ["plays_for", "member_of", "run_by"],
}


@dataclass(frozen=True)
class Planted:
    """The facts of the graph, and the held-out ones, each of which follows by its rule."""

    facts: list[Fact]
    held_out: list[Fact]


def planted(seed: int, n_people: int = 150, per_rule: int = 8) -> Planted:
    """Makes the graph: facts, what follows from them (nine tenths of it), and noise."""
    draw = random.Random(seed)
    countries = [f"country {i}" for i in range(10)]
    cities = [f"city {i}" for i in range(40)]
    people = [f"person {i}" for i in range(n_people)]
    works = [f"work {i}" for i in range(n_people)]
    clubs = [f"club {i}" for i in range(20)]
    leagues = [f"league {i}" for i in range(8)]
    given: list[Fact] = [(city, "located_in", countries[i % 10]) for i, city in enumerate(cities)]
    for i, country in enumerate(countries):
        given += [(country, "governed_by", f"government {i}")]
        given += [(f"government {i}", "seated_in", cities[i + 10 * draw.randrange(4)])]
    for i, person in enumerate(people):
        given.append((person, "born_in", draw.choice(cities)))
        given.append((person, "speaks", f"language {draw.randrange(6)}"))
        given.append((person, "plays_for", draw.choice(clubs)))
        if i >= 30:
            given.append((person, "child_of", people[i - draw.randint(20, 30)]))
    given += [(work, "written_by", draw.choice(people)) for work in works]
    given += [(club, "member_of", leagues[i % 8]) for i, club in enumerate(clubs)]
    given += [(league, "run_by", f"federation {i % 4}") for i, league in enumerate(leagues)]
    follows = {relation: sorted(follow(given, relation)) for relation in RULES}
    held_out, kept = list[Fact](), list[Fact]()
    for facts in follows.values():
        draw.shuffle(facts)
        held_out += facts[: min(per_rule, len(facts) // 4)]
        kept += [f for f in facts[min(per_rule, len(facts) // 4) :] if draw.random() < 0.9]
    noise = [(draw.choice(people), "knows", draw.choice(people)) for _ in range(2 * n_people)]
    noise += [(draw.choice(people), "visited", draw.choice(cities)) for _ in range(n_people)]
    noise += [(draw.choice(people), "likes", draw.choice(works)) for _ in range(n_people)]
    wrong = [(draw.choice(people), "nationality", draw.choice(countries)) for _ in range(5)]
    facts = sorted({*given, *kept, *noise, *wrong} - set(held_out))
    return Planted(facts, held_out)


def follow(facts: list[Fact], relation: str) -> set[Fact]:
    """Returns the facts of a relation that its rule gives."""
    pairs = {(h, h) for h, _, _ in facts} | {(t, t) for _, _, t in facts}
    for step in RULES[relation]:
        ends: dict[str, list[str]] = {}
        for h, r, t in facts:
            if step == r:
                ends.setdefault(h, []).append(t)
            elif step == f"^{r}":
                ends.setdefault(t, []).append(h)
        pairs = {(head, end) for head, here in pairs for end in ends.get(here, ())}
    return {(head, relation, tail) for head, tail in pairs if head != tail}

"""Small invented graphs of people, cities and jobs, with obvious gaps and wrong facts."""

from __future__ import annotations

import random
from dataclasses import dataclass

Fact = tuple[str, str, str]
COUNTRIES = {  # continent, language, capital and other cities
    "France": ("Europe", "French", "Paris Lyon Nice"),
    "Spain": ("Europe", "Spanish", "Madrid Seville Bilbao"),
    "Italy": ("Europe", "Italian", "Rome Milan Naples"),
    "Germany": ("Europe", "German", "Berlin Hamburg Munich"),
    "Japan": ("Asia", "Japanese", "Tokyo Osaka Kyoto"),
    "China": ("Asia", "Chinese", "Beijing Shanghai Xian"),
    "Brazil": ("South America", "Portuguese", "Brasilia Rio Recife"),
    "Portugal": ("Europe", "Portuguese", "Lisbon Porto"),
    "Austria": ("Europe", "German", "Vienna Graz"),
    "Egypt": ("Africa", "Arabic", "Cairo Luxor"),
}
JOBS = ("nurse", "teacher", "baker", "pilot", "chemist")


@dataclass(frozen=True)
class Small:
    """Facts; those left out that follow from the others; and those that are wrong."""

    facts: list[Fact]
    gaps: list[Fact]
    wrong: list[Fact]


def small(n_people: int, n_countries: int, seed: int = 0) -> Small:
    """Makes a graph of about 70 facts (12 people, 6 countries) to 190 (40 people, 10 countries).

    People are nationals of the country of their birthplace; a fifth lack the nationality, and one
    capital isn't located in its country. Two nationalities are wrong. Where people live, and what
    their job is, follows from nothing.
    """
    draw, countries = random.Random(seed), list(COUNTRIES)[:n_countries]
    places, born = list[Fact](), list[Fact]()
    for country in countries:
        continent, language, cities = COUNTRIES[country]
        places += [(country, "continent", continent), (country, "language", language)]
        places += [(city, "located in", country) for city in cities.split()]
        places.append((cities.split()[0], "capital of", country))
    located = {city: country for city, relation, country in places if relation == "located in"}
    for i in range(n_people):
        person = f"person {i}"
        born.append((person, "born in", draw.choice(list(located))))
        if draw.random() < 0.8:
            places.append((person, "lives in", draw.choice(list(located))))
        if draw.random() < 0.7:
            places.append((person, "job", draw.choice(JOBS)))
    national: list[Fact] = [(person, "nationality", located[city]) for person, _, city in born]
    draw.shuffle(national)
    n_gaps = max(n_people // 5, 2)
    capital = draw.choice([fact for fact in places if fact[1] == "capital of"])
    gaps = [*national[:n_gaps], (capital[0], "located in", capital[2])]
    wrong = [
        (person, relation, draw.choice([c for c in countries if c != country]))
        for person, relation, country in national[-2:]
    ]
    facts = {*places, *born, *national[n_gaps:-2], *wrong} - set(gaps)
    return Small(sorted(facts), gaps, wrong)

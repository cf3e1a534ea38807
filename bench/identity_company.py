"""Records of organisations whose people are known: directories, households of the staff, common names, short names.

Another kind of trouble than in `identity_data`: people share the domain of their address, the switchboard and the
office, and many of them the name. A person comes from one to three lists: the directory, a list of customers, which may
lack the address or have a private one, and a list of guests, typed by hand.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

from bench.identity_data import Known
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
    """The people of a few organisations, and some of their households."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self._weights = [1 / (place + 4) for place in range(max(len(GIVEN), len(SURNAMES)))]

    def records(self, people: int) -> list[Known]:
        """So many people, in any order."""
        found: list[Known] = []
        taken: set[str] = set()
        for number in range(people):
            place = number * len(COMPANIES) // people
            one = self._employed(place, taken)
            found += self._of_one(number, one)
            if self._dice.random() < 0.15:
                found += self._of_one(people + number, self._relative(one))
        self._dice.shuffle(found)
        return found

    def _name(self, names: Sequence[str]) -> str:
        return self._dice.choices(names, self._weights[: len(names)])[0]

    def _employed(self, place: int, taken: set[str]) -> dict[str, Any]:
        """One of many with this domain, this switchboard and this office; a name that is taken gets a number."""
        dice = self._dice
        given, surname = self._name(GIVEN), self._name(SURNAMES)
        domain = f"{COMPANIES[place].split()[0].lower()}.example"
        mailbox, again = f"{given}.{surname}", 1
        while f"{mailbox}@{domain}" in taken:
            again += 1
            mailbox = f"{given}.{surname}{again}"
        taken.add(f"{mailbox}@{domain}")
        shared = dice.random() < 0.5
        return {
            "given_name": given.title(),
            "surname": surname.title(),
            "email": f"{mailbox}@{domain}",
            "company": COMPANIES[place],
            "phone": f"+1212555{1000 + place}" if shared else f"+1646{dice.randint(2_000_000, 9_999_999)}",
            "street": f"{10 + place} Market Street",
            "city": CITIES[place],
            "country": "US",
            "date_of_birth": f"{dice.randint(1955, 2004)}-{dice.randint(1, 12):02}-{dice.randint(1, 28):02}",
            "home": f"{dice.randint(1, 900)} {dice.choice(SURNAMES).title()} Avenue",
        }

    def _relative(self, person: dict[str, Any]) -> dict[str, Any]:
        """Somebody else of the same household, with an address at a provider."""
        dice = self._dice
        given = self._name([name for name in GIVEN if name.title() != person["given_name"]])
        return {
            **{name: person[name] for name in ("surname", "city", "country")},
            "street": person["home"],
            "given_name": given.title(),
            "email": f"{given}{dice.randint(1, 9999)}@{dice.choice(PROVIDERS)}",
            "phone": f"+1312{dice.randint(2_000_000, 9_999_999)}",
            "date_of_birth": f"{dice.randint(1955, 2010)}-{dice.randint(1, 12):02}-{dice.randint(1, 28):02}",
        }

    def _of_one(self, number: int, person: dict[str, Any]) -> Iterator[Known]:
        """From one to three lists; what one of them does not ask for is missing there."""
        dice = self._dice
        shown = {name: value for name, value in person.items() if name not in ("date_of_birth", "home")}
        yield self._known("staff", number, shown)
        if dice.random() < 0.5:
            yield self._known("customers", number, self._customer(person))
        if dice.random() < 0.5:
            yield self._known("guests", number, self._guest(shown))

    def _known(self, source: str, number: int, fields: dict[str, Any]) -> Known:
        return Known(SourceRecord(source, fields, str(number)), str(number))

    def _customer(self, person: dict[str, Any]) -> dict[str, Any]:
        """At home, with the same e-mail, none, or a private one; by the short name, now and then."""
        dice, copy = self._dice, dict(person)
        copy["street"] = copy.pop("home", copy["street"])
        how = dice.random()
        if how < 0.2:
            del copy["email"]
        elif how < 0.3:
            copy["email"] = f"{copy['given_name'].lower()}{dice.randint(1, 9999)}@{dice.choice(PROVIDERS)}"
        if dice.random() < 0.15:
            given = str(copy["given_name"])
            copy["given_name"] = SHORT.get(given.lower(), given).title()
        if dice.random() < 0.3:
            copy.pop("company", None)
        return copy

    def _guest(self, person: dict[str, Any]) -> dict[str, Any]:
        """Typed by hand: slips, also in the address."""
        dice, copy = self._dice, dict(person)
        copy.pop("phone", None)
        for name in ("given_name", "surname", "email"):
            if dice.random() < 0.06:
                place = dice.randrange(1, len(copy[name].partition("@")[0]))
                copy[name] = copy[name][:place] + copy[name][place + 1 :]
        return copy

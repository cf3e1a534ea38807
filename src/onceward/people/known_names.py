"""Common given names, and names that are forms of each other.

Two different common names are two names, not a typo: Anna and Hanna, Jan and Jana, Marie and Maria may be sisters. The
lists need not be complete: an unknown name is compared by its letters.
"""

from __future__ import annotations

from typing import Final

_COMMON: Final = """
aaron abdul abigail ada adam adele adrian adriana agata agnes agnieszka ahmed ahmet aidan aisha alan albert alberto
aleksandra alena alessandra alessandro alexander alexandra alexis alfred ali alice alicia alina alisa alison alma amanda
amber amelia amelie amir amy ana anastasia andre andrea andreas andrei andres andrew andrzej angela angelika anika anita
anja ann anna anne annette annika anthony antje anton antonia antonio anya april arjun arne arthur arturo ashley astrid
aurora austin ava axel ayse barbara bartosz bastian beate beatrice beatriz benedikt benjamin bernd bernhard bettina
bianca birgit bjoern brandon brenda brian brigitte bruno burak caleb cameron camilla camille carina carl carla carlo
carlos carmen carol carola carolin carolina caroline caterina catherine cecilia celine chantal charles charlotte chloe
christa christian christiane christina christine christopher claire clara claudia clemens connor conrad corinna cristina
daisy damian dana daniel daniela daniele danielle daria dario david dawid dean deborah denis denise dennis derek desiree
diana diego dieter dimitri dirk dominic dominik dominika dora doris dorothea dorothy douglas dylan edgar edith eduard
edward egon eileen elaine eleanor elena eleonora elias elif elisa elisabeth elizabeth ella ellen elsa emil emilia emilie
emilio emily emine emma emre enrico enrique eric erich erik erika erin ernst esther ethan eva eve evelyn ewa fabian
fabienne fabio fatima fatma felicia felix ferdinand fernando finn fiona florence florian frances francesca francesco
francis francisco frank franz franziska frederic frederick frederik freya friedrich gabriel gabriela gabriele gabriella
gary georg george georgia gerald gerard gerd gerda gerhard gertrud gina giovanni giulia giulio giuseppe gloria grace
graham greta guenter guido gustav hana hanna hannah hannes hans harald harriet harry hasan hassan hayley heather heidi
heike heiko heinrich heinz helen helena helene helga helmut hendrik henri henrik henry herbert hermann hilda holger
holly hugo ian ibrahim ida igor ilona ilse imogen ines inga inge ingeborg ingo ingrid irene irina iris irma isaac isabel
isabell isabella isabelle isla ivan ivana ivo jack jackson jacob jacqueline jade jake jakob jakub james jamie jan jana
jane janet janina janine jannik jasmin jasmine jason javier jayden jean jeanette jeffrey jenna jennifer jens jeremy
jessica jill joachim joan joana joanna joanne joel johan johanna johannes john jonah jonas jonathan jordan jorge jose
josef josefine joseph josephine joshua juan judith juergen julia julian juliana juliane julie juliet julius jutta kai
karen karin karina karl karla karolina karsten kaspar katarina katarzyna katharina katherine kathleen kathrin katja
katrin kayla keith kelly kenneth kerstin kevin kiara kilian kim kirsten kirsty klara klaus konrad konstantin kristian
kristin kristina kristine krzysztof kurt kyle lachlan lara larissa lars laura lauren lea leah leila lena leo leon leona
leonard leonardo leonie leonora leopold levi lewis liam lilian lilly lily lina linda linus lisa lola lorena lorenz
lorenzo lotte louis louisa louise luca lucas lucia lucy ludwig luis luisa luise lukas luke lydia lynn maciej madison
magda magdalena maja malte manfred manuel manuela mara marc marcel marcin marco marcus margaret margarete maria mariana
marianne marie mariella marina mario marion marius mark marko markus marlene marta martha martin martina mary mateo
mateusz mathias mathilda matilda matteo matthew matthias maurice maxim maximilian maya mehmet mei meike melanie melina
melissa mia michael michaela michal michel michele michelle miguel mika mila milan milena mira miriam mohamed mohammed
moira monica monika moritz mustafa nadia nadine nadja nancy naomi natalia natalie natasha nathan neil nele niamh
nicholas nico nicola nicolas nicole niklas nikolaus nils nina noah noel nora norbert odette ole oleg olga oliver olivia
omar ophelia oscar oskar otto owen pablo pamela paola paolo pascal patricia patrick patrizia paul paula pauline pawel
pedro peter petra philip philipp philippa phoebe pia pierre pietro piotr priya quentin rachel rafael raffael ralf ralph
ramona raphael raul rebecca regina reinhard renata renate rene ricarda riccardo richard rita robert roberta roberto
robin roger roland rolf roman romina rosa rosalie rose rosemary ross roxana ruben rudolf rupert ruth ryan sabine sabrina
sally salma samantha samir samuel sandra sandro sara sarah sascha saskia scarlett scott sean sebastian selina serena
sergej sergio severin shannon sharon sheila sibylle siegfried sigrid silke silvana silvia simon simona simone sina sofia
sofie sonia sonja sophia sophie stacey stefan stefanie stefano stella stephan stephanie stephen steven stuart summer
susan susanna susanne suzanne svea sven svenja svetlana sylvia tamara tania tanja tanya tara tatjana teresa thea theodor
theresa thomas thorsten tiffany till tilman timo timothy tina tobias todd tomas tomasz toni torben torsten tracey
tristan udo ulrich ulrike ursula ute uwe valentin valentina valeria valerie vanessa vera verena veronica veronika victor
victoria viktor viktoria vincent viola violet virginia vivian vladimir volker walter waltraud wanda wendelin wendy
werner wilfried wilhelm william willow wolf wolfgang xaver yannick yannik yara yasmin yusuf yvette yvonne zara zoe zofia
"""

_FORMS: Final = """
abigail abby abbie gail
alexander alex sasha alejandro aleksander alessandro alexandre oleksandr xander
alexandra alex sasha alessandra aleksandra sandra
andreas andrew andy andre andrea andrei andrey andrzej drew andres
ann anna anne annie anya hanna hannah nan
anthony tony antonio anton antoine
barbara babs barb basia
benjamin ben benny benji
catherine katherine kathryn katharina katarina kate katie kathy cathy kat kathi katja katya kasia katarzyna katrin
charles charlie chuck carl karl carlos carlo karel
charlotte lottie charlie lotte
christine christina kristina kristin kristine chris chrissy tina christiane
christopher chris christoph kit topher krzysztof cristobal
daniel dan danny daniil
david dave davey dawid
deborah debbie deb debra
dorothy dorothea dot dotty dora
edward ed eddie ted teddy ned eduard edoardo
eleanor ellie nell nora elinor eleonora
elizabeth elisabeth liz lizzie beth betty eliza elsie lisa libby bess lisbeth isabel elzbieta else
emily em emmy emilia emilie
frances fran francesca franziska franzi
francis frank francesco francisco franz paco
frederick fred freddie freddy friedrich fritz frederic frederik
gabriel gabe
george georg georgie jorge giorgio jerzy georges yuri
gerald gerry jerry
gregory greg gregor grigori
henry harry hank heinrich henri hendrik heinz enrico enrique
isabel isabella isabelle bella izzy isa
jacob jakob jake jack james jakub
james jim jimmy jamie jaime
jane jean joan janet jan jeanne giovanna
jennifer jen jenny jenna
jessica jess jessie
john jon johnny jack johann johannes hans jan juan giovanni ivan jean ian sean joao
jonathan jon jonny john
joseph joe joey josef jose giuseppe jozef yusuf pepe sepp
joshua josh
juergen jurgen jorgen
julia julie yulia giulia julieta
julian julien jules
lawrence larry laurence lorenz lorenzo laurent lars
leonard leo leon len lenny leonardo leonhard
louis lewis ludwig luis luigi lou lukas
lucas lukas luke luca lucian
louise louisa luisa luise lou
madeleine maddie magdalena magda lena madeline
manuel manolo manny
margaret maggie meg peggy marge rita greta margarete margarita margot gretchen
maria mary marie miriam mariya molly polly mia mitzi
mark marc marcus markus marco marko marek
martin marty marcin martino
matthew matt matthias mathias matteo mateusz mateo matvey
maximilian max maxim
michael mike mick mickey michel michal miguel michele mikhail misha mischa micha
mohammed mohamed muhammad mohammad mohamad muhammed mehmet mo
natalie natalia natasha nat nataliya
nicholas nicolas nick nico nikolai niklas nikolaus klaus mikolaj nicky
nicole nicky nikki
olivia liv livvy olive
patricia pat patty trish tricia
patrick pat paddy padraig
paul pablo paolo pavel pawel pauli
peter pete pedro pietro piotr pierre petr pyotr
philip phil philipp pip filip felipe philippe
rachel rachael raquel
raphael rafael raffael raffaele rafal
rebecca becky becca rebekka rebekah
richard rick ricky dick rich ricardo riccardo
robert rob bob bobby robbie roberto bert
ronald ron ronnie
samantha sam sammy
samuel sam sammy
sarah sara sally sadie
sebastian seb bastian basti
sophie sofia sophia sofie zofia
stephen steven steve stefan stephan stefano stephane esteban szczepan
stephanie stefanie steffi stefania
susan sue susie suzanne susanne susanna zuzanna
sylvia silvia
theodore theo ted teddy theodor
theresa teresa tess terry therese tereza
thomas tom tommy tomas tomasz tommaso
timothy tim timmy timo
veronica veronika vera ronnie
victor viktor vittorio vic
victoria viktoria vicky vittoria
walter walt wally
william will bill billy willy liam wilhelm guillermo guglielmo willem guillaume
zachary zach zack
"""

_SAME_SOUND: Final = str.maketrans("cqywz", "kkivs")
COMMON: Final = frozenset(_COMMON.split())


def _groups_by_name() -> dict[str, frozenset[int]]:
    groups: dict[str, set[int]] = {}
    for group, line in enumerate(_FORMS.strip().splitlines()):
        for name in line.split():
            groups.setdefault(name, set()).add(group)
    return {name: frozenset(found) for name, found in groups.items()}


_GROUPS: Final = _groups_by_name()


def are_forms(here: str, there: str) -> bool:
    """Return whether both are forms of one name: Bob and Robert, Sofia and Sophie, Piotr and Peter."""
    theirs = _GROUPS.get(there)
    return theirs is not None and not theirs.isdisjoint(_GROUPS.get(here, frozenset()))


def are_two_names(here: str, there: str) -> bool:
    """Return whether both are common full names, so that sisters or brothers may have them: Maria and Marie."""
    return here in COMMON and there in COMMON


def are_known(here: str, there: str) -> bool:
    """Return whether both are names, so that neither is a typo of the other."""
    return all(name in COMMON or name in _GROUPS for name in (here, there))


def sound(name: str) -> str:
    """Return how a name sounds, roughly. Parents do not give two children names that sound the same: Sara, Sarah."""
    letters = name.replace("ph", "f").translate(_SAME_SOUND).replace("x", "ks")
    letters = letters[:1] + letters[1:].replace("h", "")
    return "".join(letter for n, letter in enumerate(letters) if n == 0 or letters[n - 1] != letter)

"""Common given names, and names that are forms of each other.

Two different common names are two names, not a typo: Anna and Hanna, Jan and Jana, Marie and Maria may be sisters. The
lists need not be complete: an unknown name is compared by its letters.
"""

from __future__ import annotations

from typing import Final

_COMMON: Final = """
aarav aaron abbas abdallah abdul abigail ada adam adel adela adele aditya adnan adrian adriana agata agathe agnes
agnieszka ahmed ahmet aidan aino aisha ajay akash aksel alain alan alana albert alberto alejandra aleksandra alena
alessandra alessandro alexander alexandra alexis alfonso alfred ali alice alicia alina alisa alisha alison aliya alma
alonso alvaro amal amalie amanda amandine amber amelia amelie amina amir amira amit amita amparo amy ana anais anand
ananya anastasia anatoly anders andre andrea andreas andrei andres andrew andrzej angel angela angelika angelina angelo
anika anil anita anja anjali ankit ankita ann anna annabel annabelle anne annette annika anthony antje anton antonia
antonio antti anwar anya april archer arda arjun arkady armando arnaud arne artem arthur arturo arun aruna asha ashley
ashok ashton asli asma astrid aubrey audrey aurelie aurora austin autumn ava avery axel aya aydin ayla aylin ayman ayse
aziz bailey baptiste baran barbara barnaby barry bartosz bastian beate beatrice beatriz beau begona benedikt bengt
benito benjamin benoit berk bernadette bernard bernardo bernd bernhard bethany bettina beyza bharat bianca bilal birgit
bjoern blake blanca blandine bogdan bonnie boris borislav bradley brady brandon brenda brendan brett brian bridget
brigitte britt brody brooke bruno bryan bryce bulent burak caitlin caleb callum cameron camila camilla camille can
carina carl carla carlo carlos carlota carmen carol carola carolin carolina caroline cassandra cassidy catalina
caterina catherine cecilia cedric celeste celine cem cemal cenk ceren cesar chad chantal charlene charles charlotte
chase chelsea cheryl chloe christa christelle christian christiane christin christina christine christopher claire
clara clark claudia clayton clemens clement clementine clive cody cole colin connor conrad consuelo coralie corinna
corinne courtney craig cristina crystal curtis cyril dagny daisy dalia damian dana daniel daniela daniele danielle
daphne darcy daria darina dario dariusz darren david dawid dawn dean deborah declan deepa deepak delphine denis denise
deniz dennis derek derya desiree devi dexter diana didier diego dieter dilara dimitri dina dinesh dirk divya dolores
dominic dominik dominika dominique donald donna dora doreen doris dorota dorothea dorothy douglas dragan duncan dustin
dylan ebru ece eden edgar edith edmund eduard eduardo edward eero efe egon eileen eino eirik ekaterina elaine eleanor
elena eleonora elias elif elin elina elisa elisabeth elise elizabeth ella ellen elliot elodie eloisa elsa emanuele emel
emeline emerson emil emilia emiliano emilie emilio emily emine emir emma emmanuel emre engin enrico enrique erdem eren
eric erica erich erik erika erin erkan ernest ernesto ernst esa espen esperanza esra estefania estela estelle esther
ethan etienne eugene eugenia eugenie eugenio eva evan eve evelyn evie ewa fabian fabiana fabienne fabio fabrice faith
farah farid faris fatih fatima fatma federica federico felicia felicity felix ferdinand fernanda fernando filippo filiz
finlay finn fiona flavia flavio fletcher florence florent florian flynn frances francesca francesco francis francisco
francois francoise frank franz franziska frederic frederick frederik freya frida friedrich furkan gabriel gabriela
gabriele gabriella gabrielle gaelle gaetan galina ganesh gareth gary gaurav gavin geir gemma geoffrey georg george
georgia georgina gerald gerard gerardo gerd gerda gerhard germain gertrud gilberto gilles gillian gina giovanni gita
giulia giulio giuseppe gizem glenn gloria gokhan gonzalo gopal gordon govind grace graciela graham grant grazyna
gregoire greta grzegorz guadalupe guenter guido gulsen gunilla gunnar gustav gustavo guy gwen hadi hafsa hailey hakan
hakon hala halil halina halvor hamid hamza hana hanan hani hanna hannah hanne hannes hannu hans harald hari harish
harley harriet harrison harry harvey hasan hassan hatice hayley hazel heather hector hedda heidi heike heikki heiko
heinrich heinz helen helena helene helga helle helmi helmut hendrik henning henri henrik henry herbert hermann herve
hiba hilda holger holly hope howard hristo hubert huda hudson hugo hugues hunter hussein ian ibrahim ida ignacio igor
ilaria ilker ilkka ilona ilse ilya iman imogen imran india indira ines inga inge ingeborg inger ingo ingrid ingvild
inmaculada ioana ionut irem irene irina iris irma isaac isabel isabell isabella isabelle isaiah ishaan isla ismail ivan
ivana ivo ivy iwona jaakko jack jackson jacob jacqueline jacques jade jadwiga jake jakob jakub jamal james jamie jamila
jan jana jane janet janina janine jannik jared jari jarmo jaroslav jarrod jasmin jasmine jason jasper javier jaya
jayden jean jeanette jeffrey jelena jenna jennifer jens jeremiah jeremy jerome jesper jesse jessica jill jiri joachim
joan joana joanna joanne joaquin jocelyn jodie joel joelle johan johanna johannes john jolanta jonah jonas jonathan
jordan jorge jorma jose josef josefa josefine joseph josephine joshua josie jouko jovana joy joyce juan juana judith
judy juergen juha jukka julia julian juliana juliane julie juliet julio julius jussi justin justyna jutta jyoti kaan
kaarina kadir kai kaisa kalle kamal kamil karan karen kari karim karin karina karl karla karolina karsten kaspar kasper
katarina katarzyna katharina katherine kathleen kathrin katja katrin kavita kayla kaylee keira keith kelly kelsey kemal
kenneth kerem kerstin kevin khadija khalid kiara kieran kilian kim kiran kirk kirsten kirsty kjell kjersti klara klaus
knut konrad konstantin krishna kristian kristin kristina kristine krzysztof ksenia kurt kyle kylie lacey lachlan
laetitia lakshmi lalit lamia lance lara larissa lars lasse lata laura laurel lauren lauri lea leah leandro leanne lech
leena leif leila lena lene lenka leo leon leona leonard leonardo leonie leonora leopold leslie leszek leticia levent
levi lewis liam libor liisa lilian lilly lily lina lincoln linda lindsay linus lionel lisa lloyd logan loic lola lorena
lorenz lorenzo lorraine lotte louis louisa louise lourdes luca lucas lucia luciana luciano lucinda lucio lucy ludmila
ludovic ludwig luis luisa luise luka lukas lukasz luke luz lydia lynette lynn maciej mackenzie madhu madison mads maeve
magda magdalena magnus mahesh mahmoud maija maja majid malcolm malgorzata malik malin malte manfred manish manoj manon
manuel manuela mara marc marcel marcela marcelo marcia marcin marco marcos marcus maren margaret margarete margaux
marguerite maria mariam mariana marianne mariano maribel marie mariella marilyn marina mario marion marisol marissa
marit marius mariusz marja mark markku marko markus marlene marshall marta martha martin martina marwa mary mason matej
mateo mateusz mathias mathieu mathilda mathilde matilda matteo matthew matthias matti maureen maurice mauricio maxim
maximilian maxine maya meena megan mehmet mei meike melanie melina melissa meltem mercedes meredith mert merve meryem
metin mette mia michael michaela michal michel michele michelle miguel mika mikayla mikkel mikko mila milan milena
miles millie milos minna mira mireia mireille mirella miriam mirko miroslav mitchell mohamed mohammed mohan moira mona
monica monika monique montserrat morgan morgane moritz morten mounir mukesh murat muriel mustafa nabil nada nadege
nadia nadine nadja naima nancy nanna naomi naresh nasser natalia natalie natasha nathalie nathan nathaniel naveen nawal
nazan neha neil nele nese nestor niamh nicholas nico nicola nicolas nicole niels nigel nihat nikhil nikita niklas niko
nikola nikolaus nils nina nisha nitin noah noel noelia noelle noemie noor nora norbert norman nuray nuria octavio
odette odile okan oksana olav ole oleg olena olga oliver olivia olivier olli omar omer ondrej onur ophelia orhan
orlando osama oscar oskar osman osvaldo otto outi ove owen ozan ozge ozlem paavo pablo paige paloma pamela paola paolo
parker pascal pascale pascual pasi patience patrice patricia patricio patrick patrizia patryk paul paula pauline pawel
pedro pekka pelin penelope pentti per percy petar peter petra petri philip philipp philippa phoebe phoenix pia pierre
pietro pilar pinar piotr pippa pirkko pooja poppy pradeep prakash pranav prasad preston priscilla priya priyanka
quentin quinn rabia rachel rachid radek radoslaw rafael rafaela raffael ragnar ragnhild rahil rahul raija raisa raj
raja rajesh rakesh ralf ralph rama ramazan ramesh rami ramiro ramon ramona randi rani rania raphael rashid rasmus raul
ravi rayan raymond rebecca recep reece reem regina regis reid reijo reinhard rekha renata renate rene renzo rhys
ricarda riccardo richard riikka rikke riley rina rishi risto rita ritu ritva robert roberta roberto robin rocio rodolfo
rodrigo rogelio roger rohan rohini rohit roland rolf romain roman romeo romina rory rosa rosalia rosalie rosana rosario
rose rosemary rosie ross rostislav rowan roxana roxanne ruben ruby rudolf rune rupert ruslan russell ruth ryan ryszard
sabah sabine sabrina sachin said salah salim sally salma salvador salvatore samantha samar sami samir samira samuel
sandeep sander sandra sandrine sandro sangeeta sanjay sanna santiago santosh sapna sara sarah sari sarita sascha saskia
satu savannah scarlett scott sean sebastian seda sedat selin selina selma semra seppo serdar serena serge sergej sergio
serkan severin sevgi sevim shane shannon shanti sharon sheila shelby shirley shiva shreya sibel sibylle sidney
siegfried sienna sigrid sigrun sigurd silje silke silvana silvia silvio simon simona simone sina sinan sindre siri
sirpa sita skye slavko smita sneha snezana sofia sofie solange soledad solene solveig sonal sonia sonja sophia sophie
soren souad spencer stacey stanislav stanislaw stanley stefan stefanie stefano stein stella stepan stephan stephanie
stephen steven stig stine stuart subhash sudha suleyman suman sumit summer sunil sunita suresh susan susana susanna
susanne sushma suzanne svea svein sven svenja svetlana swati sydney sylvain sylvia sylvie szymon tadeusz talia tamara
tamsin taner tania tanja tanya tapani tapio tara tariq tarja tarun tate tatjana taylor teemu tegan tejas teresa terje
terrence thea theodor theresa thiago thibault thierry thomas thor thorsten tiffany tiina till tilman timo timothy timur
tina tobias toby todd tolga tomas tomasz tone toni tor torben torbjorn tore torsten tove tracey travis trevor trine
tristan trond troy tugba tuija tuncay tuomas turgut tuula tyler tyson udo ufuk ugur ulf ulla ulrich ulrike uma umberto
umit umut unni ursula urszula usha ute uwe vaclav valentin valentina valentine valeria valerie vanessa varun vasily
vaughan vegard veikko vera verena veronica veronika veronique vesa vesna vicente victor victoria vidar vijay vikas
vikram viktor viktoria ville vimal vinay vincent vincenzo vinod viola violet virginia virginie vishal vitaly vivek
vivian viviana vivienne vladimir vojtech volkan volker wade wael walid walter waltraud wanda warren wayne wenche
wendelin wendy werner wesley wieslaw wilfried wilhelm william willow wojciech wolf wolfgang wyatt xaver xavier ximena
yahya yana yann yannick yannik yara yaroslav yash yasmin yasser yassin yavuz yilmaz yolanda yusuf yves yvette yvonne
zahra zainab zane zara zayd zbigniew zdenek zehra zeynep ziad zlata zoe zofia zoran zuzana
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
    return is_known(here) and is_known(there)


def is_known(name: str) -> bool:
    return name in COMMON or name in _GROUPS


def sound(name: str) -> str:
    """Return how a name sounds, roughly. Parents do not give two children names that sound the same: Sara, Sarah."""
    letters = name[:1].replace("z", "Z") + name[1:]  # Zara and Sara are two names, and so are Ishan and Ihsan
    letters = letters.replace("sh", "S").replace("ph", "f").translate(_SAME_SOUND).replace("x", "ks")
    letters = letters[:1] + letters[1:].replace("h", "")
    return "".join(letter for n, letter in enumerate(letters) if n == 0 or letters[n - 1] != letter)

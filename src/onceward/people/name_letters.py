"""Sequences of three letters that occur in given names.

Each word has two letters, and then all letters that may follow them; `^` is the beginning of a name and `$` its end.
They were collected from 32,000 given names of about 100 countries (the lists of the packages Faker and mimesis, and
`known_names`). A spelling with another sequence is hardly a name.
"""

from __future__ import annotations

from typing import Final

_FOLLOWING: Final = """
^aabcdefghijklmnopqrstuvwxyz ^baehijloruy ^caehilorstuvyz ^daehijlmoruvwyz ^eabcdefghijklmnoprstuvwxyz ^faeijloruy
^gabehijlnoruvwyz ^haeijlnorsuvwy ^iabcdefghijklmnoprstuvwxyz ^jacdehiouvy ^kaehijlnorsuvwy ^laehijlouwy
^mabcdeijklnorstuwyz ^nadeghijknoqrtuwyz ^oabcdefghijklmnopqrstuvwxyz ^paehijlnorsuy ^qaeiou ^raehioruyz
^sacefhijklmnopqrtuvwyz ^t$aehijorsuvwy ^uabcdefghijklmnoprstuvwxyz ^vaeijlorsuy ^waehilmoruy ^xaehiouyz
^yadefijlmnorstuv ^zabdehilorsuvwy aa$abcdfghijklmnopqrstuvwyz ab$abdehijlnorstuy ac$acehijklnopqrstuy
ad$abdefghijklmnorsuvwyz ae$abdefghijklmnrstuvwyz af$abdefgiklnorstuwy ag$abcdefghilmnoruvwy ah$abdefhijlmnoprstuvwyz
ai$abcdefghjklmnopqrstuvwxyz aj$adeijklmnorstuvwy ak$abcdeghijklmnoprstuvwy al$abcdefghijklmnopqrstuvwyz
am$abcdefhijklmnoprsuwxyz an$abcdefghijklmnopqrstuvwyz ao$bdiklmnorsu ap$aefhiklnoprstu aq$aeiosu
ar$abcdefghijklmnopqrstuvwxyz as$abcdefghijklmnopqrstuvwyz at$abcdefghijklmnorstuvyz au$abcdefghijklmnpqrstuvwxz
av$abdegiklnorstuvy aw$aefhijklmnorstuwy ax$aehilmostwx ay$abcdefghiklmnoprstuvwyz az$abdeghijlmnorsuvyz
ba$abcdefghijklmnopqrstuwxyz bb$aeilory bca bd$aeiou be$abcdeghijklmnprstuvyz bh$aeilr bi$abcdeghjklmnoqrstuvyz bjaeou
bkae blaeijouy bn$aeio bo$abdeghijklmnorstuvwyz br$aehijosuy bs$aost bt$aio bu$abcdefghijklnorstwyz bwe by$abehlnors
ca$bcdefghijklmnoprstuvwyz cbaeo ccaehio cda ce$abcdefgiklmnoprstvyz cgu ch$adeiklmnorstuvwy ci$abcdefghjklmnoprstuvz
cjau ck$aehikloqsy claeiouy cmeo cnu co$abcdeghiklmnoprstuvyz cpe cqu craeiouy cs$aeikou ct$aehioru cu$abcehklmnqrsty
cvaei cy$delnprt czaey da$abcdefghijklmnopqrstuvwxyz dbejou dch dd$abefghiklmnorsuvy de$abcdefghijklmnopqrstuvwxyz
dfior dgaeijru dh$abefghiklmnorsuvy di$abcdefghjklmnopqrstuvwxyz djaeimu dkaeijo dl$aeiouy dmaeiouy dnaeiy
do$abcdfgijklmnorstuvwxyz dr$aeiosuyz ds$aeloty dt$ajr du$abcdefghijklmnoprstuvwxyz dvaeio dw$aeioy dy$aceklmnrstuv
dz$aeims ea$bcdfghklmnorstuvz eb$abehijklnorsuy ec$acdeghiklmorstuvyz ed$abdefghijlmnorstuvwyz ee$abcdfghklmnpqrstvz
ef$aefhijklnorstu eg$abefghijlmnortuwz eh$abdeilmnorstuvz ei$abcdefgjklmnoprstuvxz ej$acdghiklmnorstuvz
ek$abcdehiklmnorstuw el$abcdefghijklmnopqrstuvwxyz em$abcefhijklmnoprstuvyz en$abcdefghijklnoprstuvwyz
eo$bcdfghiklmnprstvw ep$acehikopst eq$iu er$abcdefghijklmnoprstuvwxyz es$abcdefghijklmnoprstuvwyz
et$abcdefhijklmnorstuyz eu$abcdfglnprstvwz ev$abcdefghiklorsuvyz ew$aeikmosty ex$acefhipstuyz
ey$abdefghijklmnorstuvwxyz ez$abcdeghijklmnorsuyz fa$abcdefhiklmnoqrstuvwyz fbejo fca fdai fe$abcdehiklmnorstuvyz
ff$aeinoruwy fgaeiru fhail fi$abcdefghijklmnoqrstyz fjaeou fkaei flaeijouy fn$abdefhikltuy fo$bcdlnorstuy fradeiouy
fs$aehot ft$aehiouvy fu$adegijklmnopqrsyz fvao fwai fy$ln fzu ga$abcdefghijklmnoprstuvwxyz gbaeijou gcae gdaehiotu
ge$abcdefghijklmnorstvyz gfairu gg$aehioruvy gh$abdefhilmnortuvwy gi$abcdefgjlmnorstuvwyz gj$aeouy gkai glaeijouy
gmaeouw gn$abdefghijouvwy go$abcdefghijklmnoprstvwyz graegijouyz gs$atv gt$ahory gu$abcdeghijlmnprstuvyz gvaeio gwaeiny
gy$adegilmnortuv gzaio ha$abcdefghijklmnopqrstuvwxyz hb$aeioruy hca hdaeiy he$abcdefghijklmnoprstuvwxyz hfaeioru
hg$aeiru hhaiv hi$abcdefgijklmnopqrstuvwyz hj$aou hk$aeiu hl$aeijoy hm$aeiou hn$aeinopsuy ho$abcdefghjklmnoprstuvwy
hpeir hqi hr$aehiouvy hsacehitu ht$aehiorsy hu$abcdefgiklmnorstuwxyz hvaeio hwai hy$aehlmnoprstu hzaoy
ia$abcdeghijklmnoprstvwz ib$abcehijknorstuy ic$abcehijklmorstuy id$abdeghijklmnorstuvwyz ie$abcdefgjklmnprstuvwz
if$acdefiklnortuz ig$abdefghijlmnorstuvy ih$acehiklnorstu ii$abdefhklmnrstuv ij$aeiklmnosu ik$abehijklmnorstuvy
il$abcdefghijklmnopqrstuvwyz im$abcdefghiklmnoprstuy in$abcdefghijklmnoqrstuvwyz io$abcdefghijklmnpqrstuvz
ip$acehiklnoprstuy iq$au ir$abcdefghijklmnopqrstuvwyz is$abcdefghijklmnopqrstuvwyz it$acdeghijklmnorstuvyz
iu$bcdeklmnrstv iv$acegiknorvy iw$aeiou ix$aeiot iy$aeilmouy iz$abeghikmorstuvwyz ja$abcdefghijklmnpqrstuvwxyz jbo
jc$ais jd$aeiy je$abcdefghiklmnoprstvwyz jg$ jhao ji$abcdeghklmnoprstwy jji jk$aeo jl$aeio jmaeiou jn$aeiou
jo$abcdefghiklmnoprstuvwyz jraeiu js$abehl jtaeiou ju$abdefghiklmnoprstuvw jvio jwa jy$lort jz$aiy
ka$abcdefghijklmnoprstuvwyz kbaeioru kcaeiu kdaeou ke$acdefghijlmnorstvyz kgou khaeilostw ki$abcdefijklmnoprstuvwyz
kj$aeio kk$aeiouv klaeiouy kmaeu knaeiouy ko$abcdefgijklnoprstuvwz kpeo kqu kr$aeiosuyz ks$aehinotuy kt$aehioru
ku$abcdfgijlmnprstuz kvaei kwaeou ky$aeilmorsu la$abcdefghijklmnopqrstuvwxyz lbaehijoruy lcaehiosuy
ld$abdefghijlmnorstuvwy le$abcdefghijklmnoprstuvwxyz lf$adefghiklorstuvw lg$aehijoruy lhaeijoruv
li$abcdefghijklmnopqrstuvwxyz lj$aeikouz lk$abehijklmnorsuvy ll$abcdefghikmnorsuvwyz lm$abdefgiklorstuvwy ln$aeiouy
lo$abcdefghijklmnoprstuvwyz lp$acdehikopsu lqaiu lraeiou ls$abehiklmotuwy lt$aehijorstuyz lu$abcdefghijklmnopqrstuvwxyz
lv$adefghilnory lwaeioy lxa ly$acdegklmnorstvxy lz$abeiosy ma$abcdefghijklmnopqrstuvwxyz mb$aeijloruw mcaehiko md$aei
me$acdefghijklmnorstuvwxyz mfaior mgaeru mh$aeino mi$abcdefghijklmnoqrstyz mjao mkaeiu mlaeiou mm$abehiouy mn$aeiqu
mo$abdefghijklmnoprstuwyz mp$abehilnostu mr$aeiouy ms$aehiotu mtaehiory mu$abcdefghijklmnorstvxyz mvaeiu mwaein mxa
my$aceiklnrsu mzaei na$abcdefghijklmnopqrstuvwxyz nbaeijor nc$abehijklorstuy nd$abdeghijlorstuvwyz
ne$abcdefghijklmnopqrstuvwxyz nfaeior ng$abdefghijklmnorstuvwy nh$aeilouvw ni$abcdefghijklmnopqrstuvxyz njaeimou
nk$aeijlnorstuy nlaeijouy nmabeiou nn$abcdefghijklmorstuvy no$abcdefghijklmnopqrstuvwxyz npaehiou nqiou nraeiouy
ns$acefghijkloprstuvyz nt$aeghijlorstuwxyz nu$abcdeghijklmnopqrstuyz nvaeioy nwaeiloy ny$abcdefijklmnorsuxyz nz$aeiosuy
oa$bcdhklmnoqrstvz ob$abdehijklorstuy oc$acehiklortu od$abcdefghiklmnorsuvwyz oe$abcfiklmnprsty of$adefinortu
og$adeghilmnoruvy oh$adeijlnorstuv oi$abcdefgklmnorstuv oj$acdeikmnostuvz ok$abcdeghiklmnoprstuwy
ol$abcdefghijklmnoprstuvwy om$abcefhijkmnoprstuvy on$abcdefghijklmnorstuvwyz oo$abdfjklmnprstvz op$aehilnopruw oqtu
or$abcdefghijklmnopqrstuvwxyz os$abceghijklmnopqrstuvwyz ot$abefhikmnorstuvwyz ou$abcdefghiklmnprstvwz ov$adegilnorsuy
ow$aeilmnouy ox$aeioy oy$abcdefghijklmnorstuv oz$abcdegijklmopstuvyz pa$abcdeghiklmnopqrstuvwxyz pbe pcahi pdeo
pe$acdeghijklmnoprstuy pfa ph$aeinoruy pi$acdefhijklmnoprstuy pjeo pkaeiou plaegiou pma pnagi po$befiklmnoprsuvwy
pp$aeiosuy praeiouyz ps$aeiouz ptaehiou pu$cejklmnprstz pwo py$eort qa$abdhilmnrstwyz qeefmnr qi$abdflmpruy qma qobors
qsiu qta quabdeilmnorsty ra$abcdefghijklmnopqrstuvwxyz rb$aehijlnoruy rc$aehikostuy rd$aehijmnorstuvyz
re$abcdefghijklmnopqrstuvwxyz rf$aefhioru rg$adefhijlmnorstuvy rhaeijotuvy ri$abcdefghijklmnopqrstuvxyz rjaeiou
rk$acehijklmnorstuvw rl$acdefhiostuy rm$aeghiklostuy rn$abcdefghiklmnorstuvwy ro$abcdefghijklmnopqrstuvwxyz rp$aehikou
rqu rr$aeimouy rs$acehiklotuvyz rt$aeghijklmnorstuvwyz ru$abcdefghiklmnopqrstuvwxyz rv$aeiloy rwaeioy rx$ae
ry$abcdegijklmnoprstuv rz$aeiosuy sa$abcdefghijklmnopqrstuvwxyz sb$aeijoru sc$aehiou sdaeior
se$abcdefghijklmnopqrstuvwxyz sfaeior sgaeijru sh$abdeiklmnopqrtuvwy si$abcdefghijklmnoprstuvwxyz sjabeou
sk$aehijloruvy sl$aeijnoruy smaeiouy snaeijouy so$abcdefghijklmnoprstuvwyz sp$aehioruy sqau sradeiou ss$aeilmouyz
st$abdefghijklmnorsuvy su$abcdefghiklmnoprstuvwz svaeijo swaeio sy$abdeilmnoprsvx sz$aceijklmoptuvy
ta$abcdefghijklmnopqrstuvwyz tb$aeijou tcaeh tdhio te$abcdefghijklmnopqrstuvwxyz tf$aeir tgaeou th$abefgijklmnorstuvwyz
ti$abcdefghijklmnopqrstuvwyz tjaeo tkaeioru tl$aeiouy tmaeiu tnaeiy to$abcdfghijklmnoprstuvwyz tr$aeiopuy
ts$acehiknotuvy tt$aefhilmnorsuy tu$abcdefghiklmnoprstuvyz tvaeiry twaeioy txa ty$abcefgijklmnoqrstuy tz$aeghiosy
ua$dhiklmnrstyz ub$abehijknorsuy uc$abceghijklorsuy ud$abdefghiklmnorsuvwy ue$abdeijlmnrstuvyz uf$aefghijortu
ug$abcdefghilnortuv uh$abeilorsuy ui$abdegjklmnoqrstvyz uj$adeiotuz uk$abehijkmnorstuvw ul$abcdefghijklmnopqrstuvwxyz
um$abdefikmnoprstuy un$abcdefghijklmnoprstuvwyz uo$ciklmnrtvz up$aehikmnoprstu uqaimu ur$abcdefghijklmnoprstuvwxyz
us$acdefhijklmnoprstuyz ut$abcefghiklorstuvwyz uu$bdgklnrstv uv$aeioru uwaeio ux$ailtu uy$aegilnorsu uz$abdehimosuvyz
va$acdefghijklmnopqrstuvyz vbae vcai vdaeioru ve$abcdefghijklmnoqrstuvyz vfeir vgeiju vhei vi$abcdefghijklmnorstuvyz
vjaeo vkaeio vlaeijkou vn$aeiky vo$bdghijklmnoprstz vraeiotu vs$aei vto vu$dklnoqrstz vvaeiy vy$adnrt vz$ae
wa$abcdefghijklmnprstuvwyz we$abdefhiklmnrstyz wfo whei wi$abcdefgjklmnorstvwy wj$ wkaeo wlaloy wm$a wn$adenty
wo$ajlmnoru wraeiz ws$o wt$ho wu$deklmnort wwu wy$acelmns xa$bhlmnrsv xce xe$ijlmnqrsvy xfo xhaeim xi$acelmnorstu
xl$aei xmi xo$abclns xpe xsaot xt$aeiou xuademns xwe xx$ xy$ls xza ya$abcdefghijklmnopqrstuvwxyz ybabeijloruy
yc$aehijloy yd$aehinosu ye$cdefghijklmnprstvw yf$aeikoru ygaefgijlmotu yhaeinoru yi$abdghklmnprstwyz yjaeo yk$adeikotu
yl$abdefgijklnotuvwy ym$abeikopuy yn$adeghijklmnoqstuvw yo$abcdeghklmnoprstuz yp$aort yqu yr$abdefghijklmnorstuvwy
ys$aehiklnopstuz yt$aehijotu yu$abcdegklmnoprstuv yvaeio ywao yx$aes yyadeilnortu yz$aeio za$abcdefghiklmnpqrstuvwyz
zbaeiy zcaeiz zd$aeiorz ze$abcdefghijklmnpqrstuvwy zgaeiu zhadiu zi$abcdefghjklmnoprstuvwxyz zja zkaeiou zlaeiouy
zmaeiuy znei zo$abdefhijklmnprsyz zpaei zraio zs$aeiklotu zt$aeioru zu$bcdefhiklmnoprwz zvaeio zwae zy$bdglmnrstu
zz$aeiouy
"""

_SEQUENCES: Final = frozenset(word[:2] + letter for word in _FOLLOWING.split() for letter in word[2:])


def is_like_a_name(word: str) -> bool:
    """Return whether every sequence of three letters occurs in names."""
    marked = f"^{word}$"
    return all(marked[n : n + 3] in _SEQUENCES for n in range(len(marked) - 2))

"""ISO 3166: both codes of each country, its English name, and other names in use, all folded."""

from __future__ import annotations

from typing import Final

NAMES: Final = """
AD:AND:andorra
AE:ARE:united arab emirates,uae,u a e,emirates,vereinigte arabische emirate,emirats arabes unis,emiratos arabes unidos
AF:AFG:afghanistan
AG:ATG:antigua and barbuda,antigua
AI:AIA:anguilla
AL:ALB:albania,albanien,albanie,shqiperia
AM:ARM:armenia,armenien,armenie
AO:AGO:angola
AQ:ATA:antarctica
AR:ARG:argentina,argentinien,argentine
AS:ASM:american samoa
AT:AUT:austria,osterreich,oesterreich,autriche
AU:AUS:australia,australien,australie
AW:ABW:aruba
AX:ALA:aland islands,aland
AZ:AZE:azerbaijan,aserbaidschan,azerbaidjan
BA:BIH:bosnia and herzegovina,bosnia,bosnien,bosnien und herzegowina,bosna i hercegovina
BB:BRB:barbados
BD:BGD:bangladesh,bangladesch
BE:BEL:belgium,belgien,belgique,belgie,belgica,belgio
BF:BFA:burkina faso
BG:BGR:bulgaria,bulgarien,bulgarie
BH:BHR:bahrain
BI:BDI:burundi
BJ:BEN:benin
BL:BLM:saint barthelemy,st barthelemy
BM:BMU:bermuda
BN:BRN:brunei,brunei darussalam
BO:BOL:bolivia,bolivien,plurinational state of bolivia
BQ:BES:bonaire sint eustatius and saba,caribbean netherlands
BR:BRA:brazil,brasil,brasilien,bresil,brasile
BS:BHS:bahamas
BT:BTN:bhutan
BV:BVT:bouvet island
BW:BWA:botswana
BY:BLR:belarus,weissrussland
BZ:BLZ:belize
CA:CAN:canada,kanada
CC:CCK:cocos islands,keeling islands,cocos keeling islands
CD:COD:democratic republic of the congo,congo kinshasa,dr congo,drc,congo the democratic republic of the
CF:CAF:central african republic
CG:COG:congo,congo brazzaville,republic of the congo
CH:CHE:switzerland,schweiz,suisse,svizzera,suiza,swiss
CI:CIV:cote divoire,ivory coast,elfenbeinkuste
CK:COK:cook islands
CL:CHL:chile
CM:CMR:cameroon,kamerun,cameroun
CN:CHN:china,peoples republic of china,prc,chine
CO:COL:colombia,kolumbien,colombie
CR:CRI:costa rica
CU:CUB:cuba,kuba
CV:CPV:cape verde,cabo verde
CW:CUW:curacao
CX:CXR:christmas island
CY:CYP:cyprus,zypern,chypre
CZ:CZE:czech republic,czechia,tschechien,tschechische republik,ceska republika,cesko
DE:DEU:germany,deutschland,allemagne,alemania,germania,duitsland,niemcy,federal republic of germany,brd,ger
DJ:DJI:djibouti
DK:DNK:denmark,danemark,danmark,dinamarca,danimarca
DM:DMA:dominica
DO:DOM:dominican republic,republica dominicana
DZ:DZA:algeria,algerien,algerie
EC:ECU:ecuador
EE:EST:estonia,estland,eesti,estonie
EG:EGY:egypt,agypten,aegypten,egypte,egipto
EH:ESH:western sahara
ER:ERI:eritrea
ES:ESP:spain,spanien,espana,espagne,spagna
ET:ETH:ethiopia,athiopien
FI:FIN:finland,finnland,suomi,finlande
FJ:FJI:fiji
FK:FLK:falkland islands,malvinas
FM:FSM:micronesia,federated states of micronesia
FO:FRO:faroe islands
FR:FRA:france,frankreich,francia,frankrijk,francja
GA:GAB:gabon
GB:GBR:united kingdom,uk,u k,great britain,britain,england,scotland,wales,northern ireland,grossbritannien
GB:GBR:vereinigtes konigreich,royaume uni,reino unido,regno unito,united kingdom of great britain and northern ireland
GD:GRD:grenada
GE:GEO:georgia,georgien
GF:GUF:french guiana
GG:GGY:guernsey
GH:GHA:ghana
GI:GIB:gibraltar
GL:GRL:greenland
GM:GMB:gambia
GN:GIN:guinea
GP:GLP:guadeloupe
GQ:GNQ:equatorial guinea
GR:GRC:greece,griechenland,grece,grecia,hellas
GS:SGS:south georgia and the south sandwich islands
GT:GTM:guatemala
GU:GUM:guam
GW:GNB:guinea bissau
GY:GUY:guyana
HK:HKG:hong kong,hongkong
HM:HMD:heard island and mcdonald islands
HN:HND:honduras
HR:HRV:croatia,kroatien,hrvatska,croatie
HT:HTI:haiti
HU:HUN:hungary,ungarn,magyarorszag,hongrie
ID:IDN:indonesia,indonesien,indonesie
IE:IRL:ireland,irland,irlande,irlanda,eire,republic of ireland
IL:ISR:israel
IM:IMN:isle of man
IN:IND:india,indien,inde,bharat
IO:IOT:british indian ocean territory
IQ:IRQ:iraq,irak
IR:IRN:iran,islamic republic of iran
IS:ISL:iceland,island,islande
IT:ITA:italy,italien,italia,italie
JE:JEY:jersey
JM:JAM:jamaica,jamaika
JO:JOR:jordan,jordanien
JP:JPN:japan,japon,giappone,nippon
KE:KEN:kenya,kenia
KG:KGZ:kyrgyzstan,kirgisistan
KH:KHM:cambodia,kambodscha
KI:KIR:kiribati
KM:COM:comoros
KN:KNA:saint kitts and nevis,st kitts and nevis
KP:PRK:north korea,nordkorea,democratic peoples republic of korea
KR:KOR:south korea,korea,sudkorea,suedkorea,republic of korea,coree du sud
KW:KWT:kuwait
KY:CYM:cayman islands
KZ:KAZ:kazakhstan,kasachstan
LA:LAO:laos,lao peoples democratic republic
LB:LBN:lebanon,libanon,liban
LC:LCA:saint lucia,st lucia
LI:LIE:liechtenstein
LK:LKA:sri lanka
LR:LBR:liberia
LS:LSO:lesotho
LT:LTU:lithuania,litauen,lietuva,lituanie
LU:LUX:luxembourg,luxemburg
LV:LVA:latvia,lettland,latvija,lettonie
LY:LBY:libya,libyen
MA:MAR:morocco,marokko,maroc,marruecos
MC:MCO:monaco
MD:MDA:moldova,moldawien,republic of moldova
ME:MNE:montenegro
MF:MAF:saint martin,st martin
MG:MDG:madagascar,madagaskar
MH:MHL:marshall islands
MK:MKD:north macedonia,macedonia,nordmazedonien,mazedonien
ML:MLI:mali
MM:MMR:myanmar,burma
MN:MNG:mongolia,mongolei
MO:MAC:macao,macau
MP:MNP:northern mariana islands
MQ:MTQ:martinique
MR:MRT:mauritania
MS:MSR:montserrat
MT:MLT:malta,malte
MU:MUS:mauritius
MV:MDV:maldives,malediven
MW:MWI:malawi
MX:MEX:mexico,mexiko,mexique,messico
MY:MYS:malaysia
MZ:MOZ:mozambique,mosambik
NA:NAM:namibia
NC:NCL:new caledonia
NE:NER:niger
NF:NFK:norfolk island
NG:NGA:nigeria
NI:NIC:nicaragua
NL:NLD:netherlands,holland,niederlande,nederland,pays bas,paises bajos,paesi bassi
NO:NOR:norway,norwegen,norge,norvege,noruega,norvegia
NP:NPL:nepal
NR:NRU:nauru
NU:NIU:niue
NZ:NZL:new zealand,neuseeland,nouvelle zelande,aotearoa
OM:OMN:oman
PA:PAN:panama
PE:PER:peru,perou
PF:PYF:french polynesia
PG:PNG:papua new guinea
PH:PHL:philippines,philippinen
PK:PAK:pakistan
PL:POL:poland,polen,polska,pologne,polonia
PM:SPM:saint pierre and miquelon
PN:PCN:pitcairn
PR:PRI:puerto rico
PS:PSE:palestine,state of palestine
PT:PRT:portugal,portogallo
PW:PLW:palau
PY:PRY:paraguay
QA:QAT:qatar,katar
RE:REU:reunion
RO:ROU:romania,rumanien,rumaenien,roumanie
RS:SRB:serbia,serbien,srbija,serbie
RU:RUS:russia,russland,russian federation,russie,rusia,rossija
RW:RWA:rwanda,ruanda
SA:SAU:saudi arabia,saudi arabien,arabie saoudite
SB:SLB:solomon islands
SC:SYC:seychelles
SD:SDN:sudan
SE:SWE:sweden,schweden,sverige,suede,suecia,svezia
SG:SGP:singapore,singapur
SH:SHN:saint helena,st helena
SI:SVN:slovenia,slowenien,slovenija
SJ:SJM:svalbard and jan mayen
SK:SVK:slovakia,slowakei,slovensko,slovak republic
SL:SLE:sierra leone
SM:SMR:san marino
SN:SEN:senegal
SO:SOM:somalia
SR:SUR:suriname
SS:SSD:south sudan
ST:STP:sao tome and principe
SV:SLV:el salvador
SX:SXM:sint maarten
SY:SYR:syria,syrien,syrian arab republic
SZ:SWZ:eswatini,swaziland
TC:TCA:turks and caicos islands
TD:TCD:chad,tschad
TF:ATF:french southern territories
TG:TGO:togo
TH:THA:thailand,thailande
TJ:TJK:tajikistan,tadschikistan
TK:TKL:tokelau
TL:TLS:east timor,timor leste
TM:TKM:turkmenistan
TN:TUN:tunisia,tunesien,tunisie
TO:TON:tonga
TR:TUR:turkey,turkei,tuerkei,turkiye,turquie,turquia
TT:TTO:trinidad and tobago,trinidad
TV:TUV:tuvalu
TW:TWN:taiwan
TZ:TZA:tanzania,tansania,united republic of tanzania
UA:UKR:ukraine,ukraina
UG:UGA:uganda
UM:UMI:united states minor outlying islands
US:USA:united states,united states of america,u s a,u s,america,vereinigte staaten,vereinigte staaten von amerika
US:USA:etats unis,estados unidos,stati uniti
UY:URY:uruguay
UZ:UZB:uzbekistan,usbekistan
VA:VAT:vatican,vatican city,holy see
VC:VCT:saint vincent and the grenadines,st vincent
VE:VEN:venezuela,bolivarian republic of venezuela
VG:VGB:british virgin islands
VI:VIR:us virgin islands,virgin islands of the united states
VN:VNM:vietnam,viet nam
VU:VUT:vanuatu
WF:WLF:wallis and futuna
WS:WSM:samoa
YE:YEM:yemen,jemen
YT:MYT:mayotte
ZA:ZAF:south africa,sudafrika,suedafrika,afrique du sud
ZM:ZMB:zambia,sambia
ZW:ZWE:zimbabwe,simbabwe
"""

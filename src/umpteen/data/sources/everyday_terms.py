"""Everyday names of conditions, injuries and their causes, and the ICD-10-CM codes they mean.

A table and the function that reads it; no other source of terms, and nothing that looks at codes.
The official tables hardly ever say "heart attack" or "bee sting". These lines do; they were written
for this package from general knowledge, and like the tables they may be used freely by anyone.
They are training material for a demonstration, not advice for coding patients. The file is long
because it is a table: one line per code, checked against the code's description.
"""

from __future__ import annotations

from collections.abc import Iterator

# One line per code, the terms separated by semicolons; two codes joined by + where the words
# speak of an injury and of its cause.
_TABLE = """
# Infections
A02.0 salmonella from raw eggs or chicken
A05.9 food poisoning; sick from spoiled food; ate something that had gone bad
A08.4 stomach flu; stomach bug; tummy bug going around
A09 traveler's diarrhea; the runs after a trip abroad
A15.0 TB of the lungs; consumption of the lungs
A35 lockjaw
A37.9 child with a whooping cough
A41.9 blood poisoning
A49.0 staph infection
A54.9 the clap
A60.0 genital herpes
A63.0 genital warts
A69.2 bull's-eye rash after a tick bite
B00.1 cold sore; fever blister on the lip
B01.9 chicken pox
B02.9 painful shingles rash
B07.0 verruca on the sole of the foot
B07.9 wart on my finger
B08.3 slapped cheek disease
B18.2 long-standing hep C
B20 AIDS
B27.9 mono; the kissing disease
B35.1 toenail fungus; thick yellow toenails
B35.3 itchy fungus between the toes
B37.0 thrush in the mouth; white coating on a baby's tongue
B37.3 vaginal yeast infection
B54 malaria caught in the tropics
B68.9 tapeworm
B80 pinworms; threadworms in children
B85.0 head lice; nits in the hair
B85.3 crabs in the pubic hair
B86 itch mites; tiny mites burrowing under the skin
U07.0 lung damage from vaping
U07.1 covid; caught the coronavirus
U09.9 long covid
# Cancer, growths and blood
C16.9 stomach cancer
C18.9 colon cancer; bowel cancer
C22.9 liver cancer
C25.9 cancer of the pancreas
C43.9 mole that turned into cancer
C44.9 skin cancer
C50.9 breast cancer
C53.9 cervical cancer
C55 womb cancer
C61 prostate cancer
C62.9 testicular cancer
C64 kidney cancer
C67.9 bladder cancer
C71.9 brain cancer
C79.5 cancer that has spread to the bones
C85.9 cancer of the lymph glands
C95.9 cancer of the blood
D17.9 harmless fatty lump under the skin
D22.9 harmless mole
D25.9 fibroids; fibroids in the womb
D50.9 low iron; not enough iron in the blood
D57.1 sickle cell
D64.9 low blood count; tired blood
D66 bleeder's disease
D69.6 low platelets
# Glands, sugar, food and weight
E03.9 underactive thyroid; slow thyroid
E04.9 swollen thyroid in the neck
E05.9 overactive thyroid
E10.9 type 1 diabetes; childhood diabetes needing insulin
E11.9 sugar diabetes; type 2 diabetes; adult-onset diabetes
E16.2 low blood sugar; sugar crash
E28.2 polycystic ovaries
E53.8 low vitamin B12
E55.9 low vitamin D; not enough sunlight vitamin
E66.3 a bit overweight
E66.9 obese; very overweight
E73.9 can't digest milk; lactose intolerant
E78.0 high cholesterol
E78.1 high triglycerides
E86.0 dehydrated; not drinking enough water
E87.1 low sodium; low salt in the blood
E87.6 low potassium
# Mind and behavior
F03.9 senile; losing one's mind in old age
F10.1 drinking problem; hangover; drunk
F10.2 alcoholic; hooked on alcohol
F11.2 hooked on painkillers; heroin addict
F12.1 smoking too much weed
F14.2 hooked on cocaine
F17 hooked on cigarettes; heavy smoker who can't quit
F22 feels that everyone is out to get him
F31.9 bipolar mood swings
F32.A depressed; feeling hopeless and down
F40.0 afraid to leave the house
F40.1 painfully shy around people
F40.2 fear of flying; afraid of heights
F41.1 worrying all the time about everything
F41.9 bad nerves
F42.3 can't throw anything away
F42.9 washing hands over and over; OCD
F43.1 PTSD; shell shock; flashbacks after the war
F45.2 always convinced of having some disease
F50.0 starving herself to be thin
F50.2 binges on food and then makes herself throw up
F51.5 bad dreams
F53.0 depression after having a baby
F63.0 gambling addiction
F80.8 stutter; stammering child
F81.0 trouble learning to read
F84.0 child on the spectrum
F90.9 ADHD; ADD; hyperactive child who can't sit still
F95.9 nervous twitch
F98.0 bed-wetting; child who wets the bed
# Brain, nerves and sleep
G03.9 infection of the lining of the brain
G12.2 Lou Gehrig's disease; ALS
G20 Parkinson's; Parkinson's with shaking and stiffness
G25.0 hands that always shake
G25.8 restless legs; legs that must move at night
G30.9 Alzheimer's
G35 MS
G43.9 sick headache
G44.2 stress headache
G45.9 mini stroke; warning stroke
G47.0 can't sleep; trouble falling asleep
G47.3 stops breathing while asleep
G47.4 sudden sleep attacks during the day
G51.0 one side of the face suddenly droops
G56.0 carpal tunnel; tingling hand from too much typing
G81.9 paralyzed on one side
G82.2 paralyzed from the waist down
G82.5 paralyzed from the neck down
G91.9 water on the brain
# Eyes and ears
H00.0 sty; stye on the eyelid
H02.4 droopy eyelid
H04.1 dry eyes
H04.2 watery eyes
H10.9 pink eye; pinkeye; red sticky eye
H11.3 burst blood vessel in the white of the eye
H26.9 cloudy lens of the eye
H33.2 detached retina
H43.3 floaters; specks drifting across my vision
H50.0 cross-eyed
H52.0 farsighted; long-sighted
H52.1 nearsighted; short-sighted
H52.4 needs reading glasses with age
H53.0 lazy eye
H53.2 seeing double
H53.5 color blind; can't tell red from green
H53.8 blurry vision
H54.7 poor eyesight
H57.1 sore eye
H60.3 swimmer's ear
H61.2 ear blocked with wax
H66.9 ear infection; middle ear infection
H72.9 hole in the eardrum; burst eardrum
H91.9 deaf; hard of hearing
H92.0 earache; ear hurts
H93.1 ringing in the ears
# Heart and vessels
I20.9 chest pain when the heart gets too little blood
I21.9 heart attack; massive heart attack
I25.1 clogged heart arteries; hardening of the heart arteries
I25.2 had a heart attack years ago
I26.9 blood clot in the lung
I46.9 heart stopped beating
I48.9 a-fib
I49.9 irregular heartbeat
I50.9 weak heart that cannot pump enough
I51.7 enlarged heart
I61.9 brain bleed; bleeding in the brain
I63.9 had a stroke
I67.1 bulging blood vessel in the brain
I70.9 hardening of the arteries
I71.4 bulging main artery in the belly
I73.0 fingers turn white in the cold
I73.9 poor circulation in the legs
I82.4 blood clot in the leg
I83.9 bulging leg veins
I95.1 dizzy when standing up
I95.9 low blood pressure
# Nose, throat and lungs
J00 common cold; head cold; a cold
J02.0 strep throat
J03.9 infected tonsils
J04.0 lost my voice
J05.0 barking cough in a small child
J11.1 flu; the flu
J18 lung infection with fever
J20.9 chest cold
J30.8 allergic to cats; sneezing from house dust
J34.2 crooked wall inside the nose
J44.9 COPD; smoker's lung
J45.9 asthma attack; wheezing with asthma
J60 black lung; miner's lung
J69.0 food went down into the lungs
J81.0 water on the lungs; fluid filling the lungs
J90 fluid around the lung
J98.1 collapsed lung
# Mouth, stomach and bowels
K00.7 baby cutting teeth
K01.1 wisdom tooth that won't come through
K02.9 cavity; rotten tooth
K04.7 tooth abscess; infected tooth with pus
K05.1 inflamed gums
K08.8 tooth hurts
K12.0 canker sore; mouth ulcer
K13.0 chapped lips; cracked corners of the mouth
K21.9 acid reflux; stomach acid coming up
K25.9 stomach ulcer
K29.7 inflamed stomach
K30 upset stomach after eating
K35.3 burst appendix
K37 inflamed appendix
K40.9 groin hernia
K42.9 belly button hernia
K56.6 blocked bowels
K58.9 irritable bowel; IBS; nervous stomach and bowels
K59.0 constipated; can't poop
K60.2 painful tear at the anus
K63.5 polyp in the bowel
K70.3 drinker's liver
K72.9 liver failure
K74.6 scarred liver
K76.0 fatty liver
K80.2 gallstones
K85.9 inflamed pancreas
K90.0 gluten intolerance; can't eat wheat
K92.0 vomiting blood; throwing up blood
K92.1 black tarry poop
# Skin, hair and nails
L02.9 boil full of pus
L03.9 spreading skin infection
L05.9 cyst at the tailbone
L21.0 dandruff; flaky scalp
L22 nappy rash
L23.7 poison ivy; poison ivy rash
L29.9 itching all over
L40.9 thick scaly patches of skin
L50.9 hives; itchy welts
L55.9 too much sun on the skin
L60.0 ingrown toenail
L64.9 going bald
L65.9 losing hair; hair falling out
L70.9 pimples; zits
L73.1 razor bumps; ingrown hair
L74.0 heat rash; prickly heat
L80 white patches where skin lost its color
L84 corn on the toe
L85.3 dry skin
L89.9 bedsore; sores from lying in bed
L90.6 stretch marks
L91.0 overgrown scar
# Joints, back and muscles
M06.9 rheumatoid arthritis
M10.9 gout in the big toe
M16.9 worn-out hip
M17.9 worn-out knees; arthritis in the knee
M19.9 wear and tear of the joints
M20.4 hammer toe
M21.4 flat feet; fallen arches
M22.2 runner's knee
M25.4 water on the knee; swollen joint
M25.5 aching joints; sore knee; shoulder pain
M26.6 clicking jaw
M41.9 crooked spine; curved spine
M43.6 wry neck; crick in the neck
M51.2 slipped disc in the back
M54.2 sore neck
M54.3 pain shooting down the leg from the back
M54.5 aching lower back; threw my back out
M65.3 finger that locks when bent
M70.4 housemaid's knee
M72.2 heel pain in the morning
M76.6 sore Achilles tendon
M77.0 golfer's elbow
M79.1 aching muscles
M79.6 leg pain; arm hurts
M79.7 fibro; pain all over the body
M81.0 brittle bones; thinning bones
# Kidneys, bladder and sex organs
N10 sudden kidney infection
N17.9 kidneys suddenly stopped working
N19 kidney failure
N20.0 passing a stone
N30.9 bladder infection
N39.0 UTI; urinary infection; water infection
N39.3 leaks urine when coughing or laughing
N44.0 twisted testicle
N52.9 can't get an erection
N62 man boobs
N63.0 lump in the breast
N81.4 fallen womb
N83.2 cyst on the ovary
N91.2 missed period; periods have stopped
N94.3 PMS
N94.6 period pain; menstrual cramps
N95.1 hot flashes; change of life
N97.9 can't get pregnant
# Pregnancy, birth and what children are born with
O00.1 pregnancy in the tube
O03.9 lost the baby early in pregnancy
O14.9 high blood pressure and protein late in pregnancy
O21.0 morning sickness
O24.4 diabetes during pregnancy
O30.0 expecting twins
O32.1 baby lying bottom first
O48.0 overdue baby
O80 gave birth without trouble; normal birth
O82 C-section
O90.6 baby blues
P07.3 preemie; baby born too early
P59.9 yellow newborn baby
Q21.9 hole in the heart
Q35.9 hole in the roof of the mouth
Q38.1 tongue-tied
Q53.9 testicle that has not come down
Q66.8 club foot
Q69.9 born with an extra finger
Q90.9 born with Down's
# Complaints
R00.0 racing heart; heart beats too fast
R00.2 pounding heart; heart flutters
R04.0 bloody nose; nose won't stop bleeding
R04.2 coughing up blood
R05.9 coughing
R06.0 short of breath; can't catch my breath
R06.6 hiccups
R06.8 snoring
R07.9 chest pain
R09.8 stuffy nose; blocked nose
R10.9 stomach ache; belly ache; tummy ache
R11.0 feeling sick; queasy
R11.1 throwing up; puking
R12 acid burning in the chest after eating
R13.1 trouble swallowing
R14.0 bloated belly
R14.3 passing gas; farting
R17 yellow skin and eyes
R19.6 bad breath
R19.7 loose watery poop
R21 red spots on the skin
R25.2 leg cramps
R29.6 keeps falling down
R30.0 burning when I pee
R31.9 blood in the pee
R32 can't hold my pee
R33.9 can't pee
R35.0 peeing all the time
R41.0 confused; does not know where he is
R41.3 forgetful
R42 dizzy; light-headed; room is spinning
R43.0 lost sense of smell
R44.0 hearing voices
R47.8 slurred speech
R49.0 hoarse voice
R50.9 high temperature
R51.9 head hurts
R53.8 tired all the time; no energy; worn out
R55 fainted; passed out; blacked out
R56.0 fever fit in a small child
R56.9 had a fit
R60.0 swollen ankles; swollen legs
R61 sweating too much
R63.0 not hungry; won't eat
R63.4 losing weight without trying
R63.5 gaining weight
# Injuries
S00.9 bump on the head
S01.0 cut on the scalp
S02.2 broken nose
S02.5 chipped tooth
S02.6 broken jaw
S02.9 cracked skull
S03.2 tooth knocked out
S05.0 scratched eyeball
S06.0 knocked out by a blow to the head
S09.9 hit my head
S12.9 broken neck
S13.4 whiplash
S20.2 bruised ribs
S22.3 broken rib; cracked rib
S32.2 broken tailbone
S32.9 broken pelvis
S39.0 pulled a muscle in the lower back
S42.0 broken collarbone
S42.3 broken upper arm; broken arm
S42.4 broken elbow
S43.0 dislocated shoulder; shoulder popped out
S52.5 broke the wrist end of my forearm
S52.9 broken forearm
S61.2 cut finger; sliced my finger
S61.4 cut on the hand
S62.1 broken wrist; cracked wrist bone
S62.5 broken thumb
S62.6 broken finger
S62.9 broken hand
S63.5 sprained wrist
S63.6 jammed finger
S68.1 finger cut off
S72.0 broken hip
S72.9 broken thighbone
S76.3 pulled hamstring
S80.0 bruised knee
S80.2 skinned knee; scraped knee
S82.0 broken kneecap
S82.2 broken shin
S82.8 broken ankle
S82.9 broken leg; broken lower leg
S83.2 torn cartilage in the knee
S83.5 torn ACL
S86.0 snapped Achilles tendon
S86.8 shin splints
S90.1 stubbed toe
S92.4 broken big toe
S92.5 broken little toe
S92.9 broken foot; broken toe
S93.4 twisted ankle; rolled my ankle
# Burns, poisons, heat and cold
T15.9 something in my eye; grit in the eye
T16.9 bead in the ear
T17.1 bead up the nose
T17.2 fish bone stuck in the throat
T17.9 choking on food
T18.9 swallowed a coin
T20.0 burned face
T23.0 burned hand; burned fingers
T30.0 scald
T33.9 frostbite
T39.1 took too much paracetamol
T40.1 heroin overdose
T50.9 took too many pills; overdose of some medicine
T51.0 alcohol poisoning
T58.9 carbon monoxide poisoning; poisoned by engine fumes
T62.0 ate poisonous mushrooms
T63.0 bitten by a poisonous snake
T63.3 black widow bite
T63.4 bee sting; wasp sting; stung by a hornet
T63.6 jellyfish sting
T67.0 heat stroke; sunstroke
T68 body far too cold
T71.9 smothered; could not get air
T75.1 nearly drowned
T75.3 car sick; seasick
T78.0 throat swelling shut after eating peanuts
T78.2 severe allergic reaction
T78.4 allergic to something
T81.4 infected surgical wound
T88.7 bad reaction to a medicine
# Causes
V03.1 hit by a car while walking; run over by a car
V18 fell off my bike
V49.9 car crash; crashed my car
V80.0 fell off a horse; thrown from a horse
W00.0 slipped on ice; slipped on the icy sidewalk
W01.0 tripped and fell; stumbled over a rug
W06 fell out of bed
W07 fell off a chair
W10.9 fell down the stairs
W11 fell off a ladder
W13.2 fell off the roof
W14 fell out of a tree
W19 had a fall; fell down
W20.8 something heavy fell on me
W23.0 finger caught in a car door
W25 cut on broken glass
W26.0 cut with a kitchen knife
W28 lawn mower accident
W46.1 stuck by a used needle
W50.3 bitten by another person
W53.1 rat bite
W54.0 dog bite; dog attack
W55.0 cat bite; scratched by a cat
W55.1 kicked by a horse
W57 bug bite; mosquito bite; insect bite; tick bite
W67 drowned in a swimming pool
X00.0 house fire
X10.0 spilled hot coffee
X11.8 scalded by hot tap water
X50.0 hurt while lifting something heavy
X95.9 shot by someone
X99.1 stabbed with a knife
Y04.0 fist fight; punched in a brawl
# Injuries with their cause
S06.0+V49.9 concussion in a car accident
S13.4+V49.9 whiplash from a car crash
S42.0+V18 broke my collarbone falling off a bicycle
S42.3+W14 broke an arm falling out of a tree
S61.2+W26.0 cut my finger with a knife
S62.1+W00.0 broke my wrist slipping on ice
S62.1+W19 fell and broke my wrist
S67.1+W23.0 smashed finger in the door
S72.0+W19 broke her hip in a fall
S82.8+W10.9 broke an ankle on the stairs
S93.4+W01.0 tripped and twisted my ankle
T23.0+X10.0 burned hand from hot coffee
# Visits and circumstances
Z00.0 yearly checkup; annual physical
Z00.1 well-baby visit
Z01.0 eye test
Z23 flu shot; getting vaccinated
Z30.2 getting my tubes tied
Z30.9 birth control
Z32.0 pregnancy test
Z33.1 pregnant
Z41.1 nose job; plastic surgery for looks
Z48.0 having stitches taken out
Z51.1 chemo
Z51.5 end-of-life care; hospice
Z52.0 giving blood
Z56.0 out of work; lost my job
Z59.0 homeless; living on the street
Z60.2 lives alone
Z63.0 marriage trouble
Z72.3 couch potato
Z73.0 burned out
Z88.0 allergic to penicillin
Z94.0 has a new kidney
Z95.0 has a pacemaker
Z96.6 hip replacement; artificial knee
Z97.2 false teeth
Z97.4 wears a hearing aid
Z99.2 on dialysis
Z99.3 in a wheelchair
"""


def everyday_terms() -> Iterator[tuple[str, list[str]]]:
    """Yield the terms of the table, each with its codes, in the order of the table.

    Yields:
        A term and the code or codes it means.

    Example:
        >>> terms = dict(everyday_terms())
        >>> terms["heart attack"], terms["fell and broke my wrist"]
        (['I21.9'], ['S62.1', 'W19'])
    """
    for line in _TABLE.splitlines():
        if not line or line.startswith("#"):
            continue
        codes, _, terms = line.partition(" ")
        for term in terms.split(";"):
            yield term.strip(), codes.split("+")

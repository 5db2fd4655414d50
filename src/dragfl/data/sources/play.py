"""A generated play for the text task: no download, the same text for the same seed.

Every speaker has a trade, which gives the nouns and verbs, and habits of its own: a greeting, a refrain, and how often
it asks, names others or repeats itself. Speakers therefore differ in the characters they use, as natural clients do.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dragfl.data.dataset import Dataset
from dragfl.data.sources.text import TextSettings, from_text
from dragfl.errors import SpecError
from dragfl.rng import rng

TRADES = {  # trade -> nouns, verbs
    "sailor": ("harbour anchor sail tide storm rope gull lantern", "haul row drift sink moor sway"),
    "baker": ("oven dough flour crust yeast apron loaf cinnamon", "knead bake burn rise butter slice"),
    "judge": ("verdict witness oath quarrel statute pardon jury bench", "swear appeal condemn acquit deny weigh"),
    "gardener": ("orchard rose hedge spade seed wasp pear ivy", "plant prune bloom wither water dig"),
    "smith": ("anvil hammer furnace iron bellows spark chain hinge", "forge strike melt bend temper break"),
    "astronomer": ("comet zodiac eclipse planet axis lens night equinox", "observe orbit vanish measure glow predict"),
    "soldier": ("trumpet fortress banner shield drum march wound general", "march charge retreat guard bleed obey"),
    "physician": ("fever potion bandage pulse vein cough remedy syringe", "heal bleed cure suffer tremble mix"),
}
PEOPLE = (
    "ALDA BRUNO CELIA DORIAN EDITH FABIAN GRETA HECTOR IRIS JASPER KLARA LORENZ MIRA NORBERT OTTILIE PAULUS QUENTIN "
    "ROSWITHA SILVAN THEKLA ULRIC VERENA WENZEL XENIA YORICK ZELDA"
)
GREETINGS = ("Good morrow", "By my beard", "Hark", "Alas", "What ho", "Peace", "Well, well", "Upon my word")
REFRAINS = ("so it shall be", "mark me", "as my mother used to say", "and no more of that", "I fear", "quick, quick")
MOODS = ("old", "quiet", "golden", "bitter", "foolish", "honest", "grey", "sudden")


@dataclass(frozen=True)
class Speaker:
    """The words and habits of one speaker."""

    nouns: list[str]
    verbs: list[str]
    moods: list[str]
    greeting: str
    refrain: str
    asks: float  # probabilities of a question, of a name, and of the refrain
    calls: float
    repeats: float


def generate_play(speakers: int = 20, speeches: int = 30, seed: int = 0) -> str:
    """The text of a play, a heading `NAME.` before every speech; speakers have about `speeches` speeches each."""
    if speakers < 1 or speeches < 1:
        raise SpecError(f"a play of {speakers} speakers and {speeches} speeches each; give at least 1")
    draw = rng(seed, "play")
    counts = draw.integers((speeches + 1) // 2, speeches * 3 // 2 + 1, speakers)
    cast = [make_speaker(i, seed) for i in range(speakers)]
    order = draw.permutation(np.repeat(np.arange(speakers), counts)).tolist()
    return "\n".join(f"{speaker_name(i)}.\n{make_speech(cast[i], speakers, draw)}\n" for i in order)


def speaker_name(speaker: int) -> str:
    """`ALDA` to `ZELDA`, then `ALDA II` and so on."""
    people = PEOPLE.split()
    again, first = divmod(speaker, len(people))
    return f"{people[first]} {'I' * (again + 1)}" if again else people[first]


def make_speaker(number: int, seed: int) -> Speaker:
    """Draw the habits of a speaker; trades are assigned in turn."""
    draw = rng(seed, "play speaker", number)
    nouns, verbs = (words.split() for words in list(TRADES.values())[number % len(TRADES)])
    some_nouns, some_moods = (draw.permutation(words)[:5].tolist() for words in (nouns, MOODS))
    greeting, refrain = (str(draw.choice(words)) for words in (GREETINGS, REFRAINS))
    return Speaker(some_nouns, verbs, some_moods, greeting, refrain, *draw.uniform(0.1, 0.7, 3).tolist())


def make_speech(speaker: Speaker, speakers: int, draw: np.random.Generator) -> str:
    """One to three sentences in the manner of this speaker."""
    sentences = []
    for _ in range(draw.integers(1, 4)):
        lexicon = (speaker.nouns, speaker.nouns, speaker.moods, speaker.verbs)
        noun, other, mood, verb = (words[draw.integers(len(words))] for words in lexicon)
        if draw.random() < speaker.asks:
            sentence = f"Will the {mood} {noun} {verb} before the {other}?"
        elif draw.random() < speaker.calls:
            friend = speaker_name(int(draw.integers(speakers))).title()
            sentence = f"{friend}, the {noun} must {verb} with the {mood} {other}."
        else:
            sentence = f"I {verb} the {noun}, and the {mood} {other} will {verb} too."
        repeats = draw.random() < speaker.repeats
        sentences.append(f"{sentence[:-1]}, {speaker.refrain}{sentence[-1]}" if repeats else sentence)
    opening = f"{speaker.greeting}! " if draw.random() < speaker.repeats else ""
    return opening + "\n".join(sentences)


def load() -> Dataset:
    return from_text(generate_play(), TextSettings(), "play", "play")

"""The corpora that recipes name: what each one is, its licence, where to get it, and how to recognise a correct copy.

Token counts include one `<eos>` per line. Checksums are SHA-256 of the files as commonly distributed; a copy with the
right counts and other bytes (different line ends, for example) is usable.
"""

from dataclasses import dataclass
from typing import Literal

from highrank.errors import UserError, nearest

Level = Literal["word", "char", "bpe"]  # bpe: pieces of words, by any tokenizer
EOS = "<eos>"  # ends every line
UNK = "<unk>"  # stands for every word outside the vocabulary
SPLITS = ("train", "valid", "test")


@dataclass(frozen=True)
class Archive:
    """A zip archive on the web."""

    url: str
    files: dict[str, str]  # name in the corpus folder by name in the archive


@dataclass(frozen=True)
class CorpusInfo:
    name: str
    title: str
    licence: str
    source: str  # where to get it, in words
    level: Level
    tokens: dict[str, int] | None = None  # by split; None: not checked
    vocabulary: int | None = None
    sha256: dict[str, str] | None = None
    embedded: bool = False  # comes with Python, so there is nothing to download
    suffix: Literal[".txt", ".jsonl"] = ".txt"  # of the three files; .jsonl: dialogs (`data.dialog`)
    archive: Archive | None = None  # for `data.download`, where the licence allows it


PENN = CorpusInfo(
    name="penn",
    title="Penn Treebank, word level, with Mikolov's preprocessing (10,000 words, numbers as N)",
    licence="Linguistic Data Consortium (LDC99T42); not redistributable",
    source=(
        "the 'simple examples' archive of Mikolov's RNNLM toolkit (data/ptb.train.txt, ptb.valid.txt, ptb.test.txt), "
        "or the same three files in many language-modelling repositories; rename them train.txt, valid.txt, test.txt"
    ),
    level="word",
    tokens={"train": 929_589, "valid": 73_760, "test": 82_430},
    vocabulary=10_000,
    sha256={
        "train": "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf",
        "valid": "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2",
        "test": "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0",
    },
)

WIKITEXT_2 = CorpusInfo(
    name="wikitext-2",
    title="WikiText-2, word level (Merity et al. 2016)",
    licence="CC BY-SA 3.0 and GFDL (Wikipedia text)",
    source=(
        "the word-level archive wikitext-2-v1.zip of the WikiText dataset (wiki.train.tokens, wiki.valid.tokens, "
        "wiki.test.tokens); rename them train.txt, valid.txt, test.txt"
    ),
    level="word",
    tokens={"train": 2_088_628, "valid": 217_646, "test": 245_569},
    vocabulary=33_278,
    sha256={
        "train": "9e9fa1ad55b1c2c95b08e37dd8e653f638fac2c6de904b79e813611eefbc985f",
        "valid": "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8",
        "test": "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0",
    },
    archive=Archive(
        "https://wikitext.smerity.com/wikitext-2-v1.zip",
        {f"wikitext-2/wiki.{split}.tokens": f"{split}.txt" for split in SPLITS},
    ),
)

ONE_BILLION_WORD = CorpusInfo(
    name="one-billion-word",
    title="One Billion Word benchmark, lower-cased, its 100,000 most frequent words (Chelba et al. 2013)",
    licence="monolingual English news of the WMT 2011 shared task, under its terms (research)",
    source=(
        "the archive 1-billion-word-language-modeling-benchmark-r13output (statmt.org/lm-benchmark); its shards must "
        "be prepared (docs/scaling.md)"
    ),
    level="word",
    vocabulary=100_000,
)

PYDOC = CorpusInfo(
    name="pydoc",
    title="Python's own reference topics, word level: the text of pydoc_data.topics, which comes with CPython",
    licence="Python Software Foundation License",
    source="nothing to download; the text and its counts change a little with the Python version",
    level="word",
    embedded=True,
)

TEXT8 = CorpusInfo(
    name="text8",
    title="text8, character level: the first 100,000,000 characters of a cleaned Wikipedia (Mahoney)",
    licence="CC BY-SA 3.0 and GFDL (Wikipedia text)",
    source=(
        "text8.zip of Mahoney's Large Text Compression Benchmark (mattmahoney.net/dc/textdata.html); put its one file, "
        "text8, into the folder. A prefix of it works too, as text8.prefix"
    ),
    level="char",
    vocabulary=27,
    archive=Archive("http://mattmahoney.net/dc/text8.zip", {"text8": "text8"}),
)

SWITCHBOARD = CorpusInfo(
    name="switchboard",
    title="Switchboard telephone dialogs, as prepared by Zhao et al. (2017)",
    licence="Linguistic Data Consortium (LDC97S62); not redistributable",
    source=(
        "train.jsonl, valid.jsonl and test.jsonl in the folder data/json_data of Zhao et al.'s repository "
        "snakeztc/NeuralDialog-CVAE, under the terms of the LDC"
    ),
    level="word",
    sha256={
        "valid": "8b4c482ebae50dd22358135502fe46015f278aa1640df004dcffbddd71b05bd3",
        "test": "455529e3c7d6fc7924f3fc1c6a284510689d9542633b50fc55099519cf189e16",
    },
    suffix=".jsonl",
)

CORPORA = {info.name: info for info in (PENN, WIKITEXT_2, ONE_BILLION_WORD, PYDOC, TEXT8, SWITCHBOARD)}


def corpus_info(name: str) -> CorpusInfo:
    """Return the catalog's entry of a corpus."""
    if name not in CORPORA:
        raise UserError(f'there is no corpus, nor a folder with train.txt, called "{name}"{nearest(name, CORPORA)}')
    return CORPORA[name]

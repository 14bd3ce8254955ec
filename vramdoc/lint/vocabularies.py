"""Vocabularies of published models: rows of the embedding, rows to spare, tokens that are there from the start.

From each model's config.json and tokenizer files. A model that is not named here is not known; a fine-tuned copy under another name may have
a longer table.
"""

from __future__ import annotations

import re

ROWS = {
    "gpt2": 50257,
    "gpt2-medium": 50257,
    "gpt2-large": 50257,
    "gpt2-xl": 50257,
    "distilgpt2": 50257,
    "bert-base-uncased": 30522,
    "bert-large-uncased": 30522,
    "bert-base-cased": 28996,
    "distilbert-base-uncased": 30522,
    "roberta-base": 50265,
    "roberta-large": 50265,
    "t5-small": 32128,
    "t5-base": 32128,
}
"""Rows of the input embedding (vocab_size)."""
SPARE_ROWS = (
    (re.compile(r"gpt-j", re.IGNORECASE), 143),
    (re.compile(r"phi-(1|1_5|1\.5|2)$", re.IGNORECASE), 905),
    (re.compile(r"qwen(1\.5|2|2\.5)", re.IGNORECASE), 271),
    (re.compile(r"(^|/)bloom", re.IGNORECASE), 200),
    (re.compile(r"pythia|gpt-neox", re.IGNORECASE), 27),
    (re.compile(r"(^|/)(flan-)?t5-", re.IGNORECASE), 28),
    (re.compile(r"(^|/)opt-", re.IGNORECASE), 7),
)
"""Families whose table was made longer than the vocabulary, and by how much: vocab_size less len(tokenizer), as their authors published them.
Not held against the files here: a table that is shorter than said only makes the rule silent."""
ENDS = frozenset(
    {"<|endoftext|>", "</s>", "<s>", "<unk>", "<eos>", "<bos>", "<|im_end|>", "<|eot_id|>"}
)
"""What texts begin and end with in most vocabularies: written out, it is a token that the author knows to be there."""
SPECIAL_TOKENS = (
    (
        re.compile(r"roberta|bart|xlm|camembert|longformer", re.IGNORECASE),
        {"<s>", "</s>", "<pad>", "<unk>", "<mask>"},
    ),
    (
        re.compile(r"bert|electra|mpnet|funnel", re.IGNORECASE),
        {"[PAD]", "[CLS]", "[SEP]", "[MASK]", "[UNK]"},
    ),
    (re.compile(r"t5", re.IGNORECASE), {"</s>", "<pad>", "<unk>"}),
    (re.compile(r"bloom|opt-", re.IGNORECASE), {"<s>", "</s>", "<pad>", "<unk>"}),
    (re.compile(r"gemma", re.IGNORECASE), {"<pad>", "<eos>", "<bos>", "<unk>"}),
)
"""Families of models with special tokens that their vocabulary has from the start. Llama 2 and Mistral have no token for padding."""

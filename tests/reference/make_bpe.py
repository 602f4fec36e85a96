"""Records the results of Hugging Face's tokenizers for a text of many scripts: byte-level BPE learned from it.

Writes bpe_text.txt, bpe_vocab.json and bpe_merges.txt (GPT-2's formats) and bpe_tokens.txt (one number per line) next
to this file. Needs the package tokenizers. The tests learn the same pairs, and read them."""
import os
import random
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

here = os.path.dirname(os.path.abspath(__file__))
rng = random.Random(1)
lines = [
    "It's the sailors' song; they'll row, we've rowed, I'd row, he'd've rowed 3 times in 1999.",
    "Über den Wellen zählt der Trommler: eins, zwei, drei … vier!  Naïve façade, 20 °C, ½ price, x² + y².",
    "Η τριήρης είχε τρεις σειρές κουπιών. Тридцать вёсел в воде. שלוש שורות של משוטים. ثلاثة صفوف",
    "三段櫂船は三列の漕ぎ手を持つ。１２３。 नाव तीन पंक्तियाँ १२३ เรือสามแถว 노 젓는 배",
    "code:\tif (a[i] != b[j]) { return -1; }\r\n\r\n    x = 0x1f;  // done   ",
    "emoji \U0001f6a3\u200d\u2642\ufe0f \U0001f30a\U0001f30a, e\u0301 combined, "
    "nbsp\u00a0here\u2003wide\u3000space\u2028line\u0085next",
]
words = " ".join(lines).split(" ")
text = "\n".join(lines) + "\n" + " ".join(rng.choice(words) for _ in range(500)) + "\n\n\n"

tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
trainer = trainers.BpeTrainer(vocab_size=600, min_frequency=2, special_tokens=[], show_progress=False,
                              initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
tokenizer.train_from_iterator([text], trainer)
tokenizer.model.save(here, "bpe")
os.rename(os.path.join(here, "bpe-vocab.json"), os.path.join(here, "bpe_vocab.json"))
os.rename(os.path.join(here, "bpe-merges.txt"), os.path.join(here, "bpe_merges.txt"))
with open(os.path.join(here, "bpe_text.txt"), "wb") as f:
    f.write(text.encode())
with open(os.path.join(here, "bpe_tokens.txt"), "w") as f:
    f.writelines(f"{i}\n" for i in tokenizer.encode(text).ids)

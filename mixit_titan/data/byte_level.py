"""Ranks in tiktoken's format as a byte-level BPE of Hugging Face's `tokenizers`."""

import tiktoken
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers


def from_ranks(
    encoding: tiktoken.Encoding, *, pattern: str | None = None, specials: bool = True
) -> Tokenizer:
    """The tokenizer that gives every text the same ids as `encoding`.

    tiktoken merges the pair whose union has the lowest rank. A list of pairs in the order of their
    unions is equivalent: the last pair of each token, and by induction all pairs before it.
    `pattern` is an equivalent form of the pattern of `encoding`. Without `specials`, no text is
    taken for a special token.
    """
    alphabet, ranks = dict(enumerate(letters())), encoding._mergeable_ranks

    def word(token: bytes) -> str:
        return token.decode("latin-1").translate(alphabet)

    pairs = [_last_pair(token, ranks) for token in sorted(ranks, key=ranks.get) if len(token) > 1]
    merges = [(word(pair[0]), word(pair[1])) for pair in pairs if pair is not None]
    special = encoding._special_tokens if specials else {}
    # Special tokens, too: otherwise they would get the next ids, where some tokenizers have a gap.
    vocabulary = {word(token): rank for token, rank in ranks.items()} | special
    # A piece that is a token becomes that token, even if no chain of pairs leads to it.
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern or encoding._pat_str), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in special])
    assert all(tokenizer.token_to_id(name) == rank for name, rank in special.items())
    return tokenizer


def _last_pair(token: bytes, ranks: dict[bytes, int]) -> tuple[bytes, bytes] | None:
    """The two parts that are merged last, when only lower ranks have been merged before."""
    own, rank = ranks[token], ranks.get
    cuts = list(range(len(token) + 1))  # between the parts, and at both ends
    joined = [rank(token[cut : cut + 2], own) for cut in cuts[:-2]]
    while len(joined) > 1:
        lowest = min(joined)
        if lowest >= own:
            return None
        at = joined.index(lowest)
        del joined[at], cuts[at + 1]
        if at > 0:
            joined[at - 1] = rank(token[cuts[at - 1] : cuts[at + 1]], own)
        if at < len(joined):
            joined[at] = rank(token[cuts[at] : cuts[at + 2]], own)
    return token[: cuts[1]], token[cuts[1] :]


def letters() -> list[str]:
    """How byte-level tokenizers write each byte: as itself if it is visible in Latin-1, else as one
    of the characters from 256 on."""
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = iter(range(0x100, 0x200))
    return [chr(byte if byte in visible else next(hidden)) for byte in range(256)]

"""A short summary of a split, by which a split that was extended later is recognized as beginning
with it. The checksums of its shards are in the manifest; tokens are read only where the last shard
was continued."""

import hashlib

from mixit_titan.data.shards import TokenSplit, map_shard

Content = list[int | str]
"""Tokens, shards, and a checksum of the tokens; ready for JSON."""


def content(split: TokenSplit) -> Content:
    """The summary of a split."""
    sums = [shard.sha256["tokens"] for shard in split.shards]
    return [split.tokens, len(sums), _joined(sums)]


def begins_with(split: TokenSplit, before: Content) -> bool:
    """Whether the tokens of a split begin with the content of another: with equal shards, except
    that the last one may be longer."""
    if before == content(split):
        return True
    match before:
        case [int(tokens), int(shards), str(checksum)] if 0 < shards <= len(split.shards):
            pass
        case _:
            return False
    last = split.shards[shards - 1]
    rest = tokens - int(split.first_token[shards - 1])
    if not 0 < rest <= last.tokens:
        return False
    ids = map_shard(split.folder, last, split.dtype, "tokens")[:rest]
    sums = [shard.sha256["tokens"] for shard in split.shards[: shards - 1]]
    return _joined([*sums, hashlib.sha256(ids).hexdigest()]) == checksum


def _joined(checksums: list[str]) -> str:
    return hashlib.sha256("".join(checksums).encode()).hexdigest()[:16]

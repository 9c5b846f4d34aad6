"""Values that a key or an option may not expect."""

import random
from typing import Any, Literal, get_args, get_origin

WHOLE = ["0", "-1", "1", "2", "3", "7", "-9", "1000000", "2147483648", "-2147483649"]
WHOLE += ["9223372036854775807", "9223372036854775808", "1000000000000000000", "1" + 20 * "0"]
WHOLE += ["0x10", "1_000", "1.0", "1e3", "00", "+5", "-0", "٣", "1" * 5000, "0x" + "f" * 4000]
NUMBERS = ["nan", "inf", "-inf", "-1.0", "0.0", "1e308", "-1e308", "1e-320", "1e400", "0.5"]
NUMBERS += ["1e30", "2.5", "-0.0", "1e-9"]
TEXTS = ["", " ", "x", "None", "null", "true", "false", "-", "--", "---", "=", ".", "..", "a.b"]
TEXTS += ["~", "a,b", ",", "[]", "[1, 2]", "{}", "{a = 1}", '"', "'", "''", "a\nb", "\x1b[31mred"]
TEXTS += ["no/where", "/dev/null", "/proc/self/mem", "/proc/x", "/root/x", "x" * 300, "x/" * 3000]
TEXTS += ["café", "日本", "\u202e", "\udcff", "%s", "%d", "{0}", "[bold]x", "[/bold]", "[/]"]
TEXTS += ["$(touch canary)", "; touch canary", "__import__('os')", "os:system", "a:b", ":"]
TEXTS += ["x" * 100_000]
STACKS = ["mixit", "standard mixit", "mixit*3 standard", "frozen_qk@upper", "mixit standard@0-1"]
STACKS += ["attention-freeze-qk-mlp", "mixing-freeze-v mixit@last", "random*2 standard*2"]


def bad_value(rng: random.Random, hint: Any = str) -> str:
    """Now and then of another type than the hint's; never sure to be wrong."""
    kinds = get_args(hint) or (hint,)
    pools = [WHOLE, NUMBERS, TEXTS]
    if rng.random() < 0.7:
        likely = [*([WHOLE] if int in kinds else []), *([NUMBERS, WHOLE] if float in kinds else [])]
        pools = likely or [TEXTS]
    value = rng.choice(rng.choice(pools))
    if get_origin(hint) is Literal and rng.random() < 0.3:
        value = mangled(rng, str(rng.choice(get_args(hint))))
    return value


def mangled(rng: random.Random, text: str) -> str:
    """With some characters gone, doubled, exchanged or new."""
    for _ in range(rng.randint(1, 3)):
        place = rng.randrange(len(text) + 1)
        new = rng.choice(["", text[place : place + 1] * 2, chr(rng.randrange(32, 127)), "\t", "é"])
        text = text[:place] + new + text[place + rng.randint(0, 2) :]
    return text


def bad_stack(rng: random.Random) -> str:
    """How a stack is written (model/stack.py), with something wrong in it, mostly."""
    stack, number = rng.choice(STACKS), rng.choice(WHOLE)
    changed = [mangled(rng, stack), f"{stack}*{number}", f"{stack}@{number}", f"{stack}@0-{number}"]
    changed += [f"{stack} {rng.choice(TEXTS)}", f"{stack}-freeze-{rng.choice(TEXTS)}"]
    changed += [stack, " ".join([stack] * rng.choice((2, 1000, 30_000)))]
    return rng.choice(changed)

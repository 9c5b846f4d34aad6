"""How our setup differs from the paper's, and why, as reported at each scale."""

from mixit_titan.reproduction.jobs import FEWER_SEEDS, FEWEST_SEEDS, SEEDS, Plan
from mixit_titan.tasks.choice import FIRST_SEED

_ALWAYS = {
    "Seeds": "The paper does not state its number of seeds. Unless --seeds says otherwise, ours is "
    f"{SEEDS} at cpu scale, but to save time {FEWER_SEEDS} for retrieval, Dyck-1, reviews, "
    f"language models and Table 6, and {FEWEST_SEEDS} where Figure 2 has other numbers of pairs "
    f"than Table 1; at paper scale it is {FEWEST_SEEDS}. Each result has a 95% interval.",
    "Choice of settings": "The paper reports the best of a search and does not say on what data. "
    "Where we choose settings from a grid, every variant has the same grid and budget, and the "
    "choice is made on a validation split that is used for neither training nor testing, with "
    f"seeds from {FIRST_SEED:,} on, which no reported run has. The sizes of the cpu presets, and "
    "all settings of tasks without such a choice, were set by hand with the claims in view "
    "(docs/tasks.md).",
    "Solved runs": "A run stops at the first evaluation that reaches the target accuracy on "
    "examples from the training side of the split, drawn independently of the batches; the budgets "
    "show which runs did. The test set plays no part in this. The target is the same for all "
    "variants, and differences above it mean nothing.",
    "Test sets": "Each seed draws its own test set, except for reviews, whose test set is the same "
    "for all seeds: more seeds are no new test of it.",
    "Addition": "We score all digits of the answer and not the stop token; the authors' code never "
    "scores the first digit, but does score the stop token.",
    "Table 7": "Our models are at initialization, as the size of the paper's values suggests.",
}
_ON_A_CPU = {
    "Sizes": "Models and tasks are small, so that everything takes an hour and a half on two "
    "cores; the settings are below each table. The claims are about orders and differences, at "
    "levels near the paper's; the values themselves are not comparable.",
    "Text": "Tables 2 and 7 use the sources of Python's standard library, byte by byte, instead of "
    "WikiText-103 and FineWeb-edu; --text adds another text to Table 2.",
}


def differences(plan: Plan) -> dict[str, str]:
    """Topic -> how our setup differs from the paper's."""
    return _ALWAYS | (_ON_A_CPU if plan.scale == "cpu" else {})

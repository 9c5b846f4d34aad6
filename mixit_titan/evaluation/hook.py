"""Gives lm-eval's own command the name of our model: `lm_eval --model mixit_titan`.

The harness has no entry points for models. `mixit_titan_lm_eval.pth`, which is installed beside the
package, is read when Python starts, and imports this module where the process is that command; it
does nothing in any other. What the name stands for is imported when it is asked for.
"""

import contextlib

NAME, TARGET = "mixit_titan", "mixit_titan.evaluation.harness:MixitTitan"

with contextlib.suppress(ImportError):
    import lm_eval.models  # noqa: F401 (the harness's own, which it looks for in an empty registry)
    from lm_eval.api.registry import model_registry

    if NAME not in model_registry:
        model_registry.register(NAME, target=TARGET)

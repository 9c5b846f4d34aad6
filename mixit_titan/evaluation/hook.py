"""Makes our model known to lm-eval's own command: `lm_eval --model mixit_titan`.

The harness has no entry points for models. `mixit_titan_lm_eval.pth`, which is installed beside the
package, is read whenever Python starts; it imports this module if the process is that command, and
does nothing otherwise. The model itself is imported only when it is used.
"""

import contextlib

NAME, TARGET = "mixit_titan", "mixit_titan.evaluation.harness:MixitTitan"

with contextlib.suppress(ImportError):
    import lm_eval.models  # noqa: F401 (the harness's own, registered only while there are none)
    from lm_eval.api.registry import model_registry

    if NAME not in model_registry:
        model_registry.register(NAME, target=TARGET)

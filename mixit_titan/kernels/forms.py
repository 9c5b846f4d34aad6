"""The forms in which a mixing matrix exists.

- stored: in memory, in the dtype of the values (stored.py).
- sharded: the same, in rows that FSDP2 shards and gathers.
- generated: drawn while it is multiplied (generated.py).
"""

from typing import Literal

Form = Literal["stored", "sharded", "generated"]

"""Tasks of lm-eval whose data are files: a multiple choice, a cloze, a text and one to write."""

import json
from pathlib import Path

CHOICE = """\
task: local_choice
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{context}}}}"
doc_to_choice: choices
doc_to_target: label
target_delimiter: " "
metric_list:
  - {{metric: acc, aggregation: mean, higher_is_better: true}}
  - {{metric: acc_norm, aggregation: mean, higher_is_better: true}}
"""
CLOZE = """\
task: local_cloze
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: loglikelihood
doc_to_text: "{{{{context}}}}"
doc_to_target: " {{{{word}}}}"
target_delimiter: ""
metric_list:
  - {{metric: perplexity, aggregation: perplexity, higher_is_better: false}}
  - {{metric: acc, aggregation: mean, higher_is_better: true}}
"""
ROLLING = """\
task: local_rolling
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{{{context}}}}"
metric_list:
  - {{metric: bits_per_byte, aggregation: bits_per_byte, higher_is_better: false}}
"""
WRITTEN = """\
task: local_written
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{prompt}}}}"
doc_to_target: " {{{{word}}}}"
generation_kwargs: {{until: ["\\n\\n\\n"], max_gen_toks: 8, do_sample: false}}
metric_list:
  - {{metric: exact_match, aggregation: mean, higher_is_better: true}}
"""
TASKS = {"choice": CHOICE, "cloze": CLOZE, "rolling": ROLLING, "written": WRITTEN}

# Of very unequal length; the last one is longer than what the models of the tests see at once.
CONTEXTS = [
    "if x is",
    "return",
    "for name in names:\n    print(name, end=",
    "é",
    "a b c d e f g " * 9,
]
PROMPTS = ["def", "return x", "if", "é", "for n in range("]
WORDS = ["None", "self", "argument", "the", "x"]


def write_tasks(folder: Path, *kinds: str) -> Path:
    """A folder of YAML files, for --tasks and for the harness's --include_path."""
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / "data.jsonl"
    rows = zip(CONTEXTS, PROMPTS, WORDS, strict=True)
    with data.open("w") as file:
        for number, (context, prompt, word) in enumerate(rows):
            choices = [word, "zzz", f"{word} = {word}"]
            row = {"context": context, "prompt": prompt, "word": word, "choices": choices}
            file.write(json.dumps(row | {"label": number % 3}) + "\n")
    for kind in kinds or TASKS:
        (folder / f"{kind}.yaml").write_text(TASKS[kind].format(data=data))
    return folder

"""From a user's words to the run that is measured."""

import dataclasses

import pytest

from mixit_titan.bench.arguments import command_line, read_arguments
from mixit_titan.bench.runs import plan_variant, read_point, run_table, split_axes
from mixit_titan.bench.settings import Point
from mixit_titan.config.shipped import shipped_configs
from mixit_titan.errors import ConfigError
from tests.bench.conftest import TINY, make_point

CONFIGS = shipped_configs()


def point_of(words: str, *, ranks: int = 1) -> Point:
    return read_point(read_arguments(words.split()), ranks)


@pytest.mark.parametrize("name", CONFIGS)
def test_every_shipped_config_gives_a_point_or_says_what_would(name: str) -> None:
    words = f"{CONFIGS[name]}"
    if name.startswith(("debug", "wikitext2")):
        assert point_of(words).documents
        return
    with pytest.raises(ConfigError, match="is for GPUs and this machine has none: a small") as no:
        point_of(words)
    advice = str(no.value).split("on the CPU by ")[1]
    point = point_of(f"{words} {advice}")
    assert (point.chunks, point.compile, point.dtype) == (8, True, "float32")
    assert point.documents == (name != "paper_fineweb_edu")


def test_a_config_is_measured_as_it_is() -> None:
    words = f"{CONFIGS['160m_fineweb_edu']} --device auto"
    point = point_of(words, ranks=2)
    assert (point.batch, point.microbatches, point.seq_len) == (128, 4, 2048)
    assert point.tokens * point.data_parallel == 256 * 2048
    assert (point.chunks, point.compile, point.documents) == (8, True, True)
    assert point.shape.width == 768 and point.run["data"]["path"] == "synthetic"
    whole = point_of(f"{words} --documents off --chunks 1 --batch 3 --compile off")
    assert (whole.batch, whole.microbatches) == (3, 1)
    assert (whole.documents, whole.chunks, whole.compile) == (False, 1, False)
    tensor = point_of(f"{words} --parallelism.tensor_parallel_degree 2", ranks=4)
    assert (tensor.ranks, tensor.data_parallel, tensor.batch) == (4, 2, 128)


def test_what_is_not_training_is_off_and_data_can_be_named() -> None:
    settings = f"{CONFIGS['debug_mixit']} --metrics.enable_wandb --data.tokenizer bytes"
    run = run_table(read_arguments(settings.split()))
    assert run["checkpoint"] == run["validator"] == {"enable": False}
    assert run["metrics"].keys() == {"log_freq"}
    assert run["data"] == {"path": "synthetic"}
    run = run_table(read_arguments([*settings.split(), "--data.path=stdlib"]))
    assert run["data"] == {"path": "stdlib", "tokenizer": "bytes"}
    words = ["--optimizer.groups", '[{parts = "mlp", freeze_until = 20}]', "--eval.freq", "5"]
    run = run_table(read_arguments([*settings.split(), *words]))
    assert "groups" not in run["optimizer"] and run["optimizer"]["lr"] == 2e-3
    assert "eval" not in run


def test_the_variant_of_a_file_gives_way() -> None:
    run = run_table(read_arguments(f"{CONFIGS['debug_mixit']} --model.mixing.seed 3".split()))
    run["model"] |= {"mixer": "mixing", "freeze": ["mlp"]}
    for name in ("standard", "frozen_qk", "mixit", "mixit*3 standard", "frozen_mlp*2 standard*2"):
        plan = plan_variant(run, name, 1, "a test")
        assert plan.model.stack.name == name
        assert plan.model.mixing_seed == (3 if "mixit" in name else 0)


def test_a_scan_has_a_point_for_each_combination() -> None:
    words = f"{TINY} --seq-len 8,16 --documents on,off --chunks 1,4"
    points = [read_point(args, 1) for args in split_axes(read_arguments(words.split()))]
    assert [(p.seq_len, p.documents, p.chunks) for p in points] == [
        (m, d, c) for m in (8, 16) for d in (True, False) for c in (1, 4)
    ]
    assert {p.shape.seq_len for p in points} == {8, 16}


def test_graphs_are_the_runs_setting() -> None:
    args = read_arguments(TINY.split())
    for word, disabled in (("on", False), ("off", True)):
        run = run_table(dataclasses.replace(args, graphs=word))
        assert run["training"]["disable_cuda_graphs"] == disabled
    assert "disable_cuda_graphs" not in run_table(args)["training"]
    assert not make_point().graphs  # on a CPU


def test_the_words_of_a_rank_are_read_as_the_same_arguments() -> None:
    words = f"{CONFIGS['debug_mixit']} --variants standard mixit --compile on --seq-len 8,16 "
    words += "--no-alone --training.max_norm 2 --fsdp.frozen=resident --compile.enable --out x"
    args = read_arguments(words.split())
    assert args.overrides == tuple(
        ["--training.max_norm", "2", "--fsdp.frozen=resident", "--compile.enable"]
    )
    assert args.variants == ("standard", "mixit") and not args.alone
    assert read_arguments(command_line(args)) == args

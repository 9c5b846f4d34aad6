"""Estimates what a run will take on GPUs (memory, communication and time) from its plan alone. The
figures are modeled: nothing is built, and no GPU is needed."""

import dataclasses
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, get_args

from torchtitan.distributed import ParallelDims
from torchtitan.models.common.attention import FlexAttention

from mixit_titan.config.sections import Sections
from mixit_titan.data.synthetic import MEDIAN, SIGMA
from mixit_titan.kernels.forms import Form
from mixit_titan.kernels.tiles import COSTS, Source, source_of
from mixit_titan.model import speed
from mixit_titan.model.accounting import flops_per_token, mixing_layers
from mixit_titan.model.communication import Received, step_bytes
from mixit_titan.model.hardware import GPUS_PER_NODE, NETWORK, Gpu, find_gpu
from mixit_titan.model.memory import Step, StepMemory, step_memory
from mixit_titan.model.packing import Packing
from mixit_titan.model.parallelize import Recomputation
from mixit_titan.model.phases import Trained, trained
from mixit_titan.model.shapes import Shape
from mixit_titan.model.stack import Stack

if TYPE_CHECKING:
    from mixit_titan.config.plan import Plan

_MOST_ROWS = 1024
"""The largest local batch that is tried where no global batch limits it."""
_LAUNCHES_PER_LAYER = 60
"""Kernel launches of forward and backward: seven linears with three products each, and about twice
as many kernels between them, whether or not the model is compiled."""
_LAUNCH_SECONDS = 2e-6
"""The time between two kernels of a CUDA graph; without a graph it is longer."""


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """The same run with another recomputation mode."""

    recomputation: str
    memory: StepMemory
    fits: bool
    tokens_per_s: float
    largest_batch: int | None
    """The largest training.local_batch_size that fits; None if not even one row does."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What one run takes. Memory and communication are those of one rank; times are modeled."""

    variant: str
    flavor: str
    form: Form | None
    """The form of the mixing matrices, or None without any."""
    gpu: Gpu
    ranks: int
    recomputation: str
    local_batch_size: int
    global_batch_size: int
    memory: StepMemory
    received: Received
    seconds: speed.Seconds
    launches: int
    """A lower bound of the kernels launched per step."""
    tokens_per_step: int
    days: float
    """Until the end of training.steps, without validation and saves."""
    trained: list[Trained]
    """The phases of training, where what is trained changes in the run."""
    alternatives: list[Alternative]
    """One for each recomputation mode."""
    assumptions: list[str]

    @property
    def fits(self) -> bool:
        """Whether the memory of a rank fits into its GPU."""
        return self.memory.total <= self.gpu.available

    @property
    def communication_bytes(self) -> int:
        """What a rank receives per step."""
        return self.received.total

    @property
    def seconds_per_step(self) -> float:
        """The modeled time of one step."""
        return self.seconds.total

    @property
    def tokens_per_s(self) -> float:
        """The modeled throughput of all ranks together."""
        return self.tokens_per_step / self.seconds.total

    @property
    def time(self) -> str:
        """`3.4 hours` or `2.1 days` to the end of training.steps."""
        return f"{self.days:.1f} days" if self.days >= 1 else f"{24 * self.days:.1f} hours"

    @property
    def is_toy(self) -> bool:
        """Whether launching the kernels, which is not modeled, takes longer than everything that
        is: the modeled speed then means nothing."""
        return self.seconds.total < self.launches * _LAUNCH_SECONDS

    def what_would_fit(self) -> list[str]:
        """Overrides, each of which alone would make the run fit."""
        found = []
        for other in self.alternatives:
            if other.recomputation == self.recomputation:
                if other.largest_batch is not None:
                    found.append(f"--training.local_batch_size {other.largest_batch}")
            elif other.fits:
                found.append(f"--activation_checkpoint.mode {other.recomputation}")
        return found

    def advice(self) -> str:
        """Why the run does not fit, and what would."""
        needs = f"it needs {_gib(self.memory.total)} of the {_gib(self.gpu.available)}"
        others = " or ".join(self.what_would_fit())
        would = f"{others} fits" if others else "more shards or tensor parallelism may"
        return f"{needs} that each {self.gpu.name} has for tensors: {would}"

    def as_json(self) -> dict[str, Any]:
        """The estimate as `params --json` prints it."""
        return {
            "modeled": True,
            "variant": self.variant,
            "flavor": self.flavor,
            "form": self.form,
            "gpu": self.gpu.name,
            "ranks": self.ranks,
            "recomputation": self.recomputation,
            "local_batch_size": self.local_batch_size,
            "global_batch_size": self.global_batch_size,
            "memory_bytes": _memory_json(self.memory),
            "available_bytes": self.gpu.available,
            "fits": self.fits,
            "communication_bytes": {**asdict(self.received), "total": self.received.total},
            "tokens_per_s": None if self.is_toy else self.tokens_per_s,
            "seconds_per_step": {**asdict(self.seconds), "total": self.seconds.total},
            "days": None if self.is_toy else self.days,
            "alternatives": [
                asdict(other)
                | {"memory": _memory_json(other.memory)}
                | ({"tokens_per_s": None} if self.is_toy else {})
                for other in self.alternatives
            ],
            **({"trained": [each._asdict() for each in self.trained]} if self.trained else {}),
            "assumptions": self.assumptions,
        }


def _memory_json(memory: StepMemory) -> dict[str, int]:
    return {**asdict(memory), "total": memory.total}


def estimate(plan: "Plan", *, ranks: int, gpu: str = "H100") -> Estimate:
    """Model a plan. `ranks` must be the number that the plan was made for, one per GPU."""
    return _Model(plan, ranks, find_gpu(gpu)).estimate()


def memory_left(
    sections: Sections, shape: Shape, stack: Stack, *, ranks: int, available: int
) -> int:
    """Bytes that a rank has left for mixing matrices, of those `available` for tensors. Negative if
    the rest alone does not fit."""
    shape, stack = _stage(shape, stack, sections, ranks)
    step = step_of(sections, ranks)
    return available - step_memory(shape, stack, step, "stored").without_matrices


def step_of(sections: Sections, ranks: int) -> Step:
    """The part of a rank in one step of the run."""
    training, parallelism = sections.training, sections.parallelism
    dims = ParallelDims.from_config(parallelism, ranks)
    data_ranks = dims.dp_replicate * dims.dp_shard
    batch, local = training.global_batch_size, training.local_batch_size
    half = sections.optimizer.implementation == "fused_opt_states_bf16"
    kept = parallelism.fsdp_reshard_after_forward == "never" or dims.pp > 1
    return Step(
        rows=local,
        length=training.seq_len,
        documents=sections.data.packing == "stream",
        dtype=training.mixed_precision_param,
        recomputation=sections.activation_checkpoint.mode,
        compiled=sections.compile.enable,
        chunks=sections.loss.num_chunks,
        microbatches=1 if batch == -1 else batch // (local * data_ranks),
        graphs=not training.disable_cuda_graphs,
        validates=sections.validator.enable,
        shards=dims.dp_shard * dims.cp,
        replicas=dims.dp_replicate,
        tensor=dims.tp,
        context=dims.cp,
        frozen=sections.fsdp.frozen,
        resharded=not kept,
        offloaded=training.enable_cpu_offload,
        moment_bytes=2 if half else 4,
    )


def _stage(shape: Shape, stack: Stack, sections: Sections, ranks: int) -> tuple[Shape, Stack]:
    """The model, or the largest stage of a pipeline: as many layers as any stage, the ones with the
    most FLOPs, with embedding and head."""
    stages = ParallelDims.from_config(sections.parallelism, ranks).pp
    if stages == 1:
        return shape, stack
    layers, pairs = -(-shape.layers // stages), stack.fill(shape.layers)
    shape = dataclasses.replace(shape, layers=layers)
    starts = range(0, len(pairs) - layers + 1, layers)
    splits = [Stack(pairs[start : start + layers], stack.outer) for start in starts]
    return shape, max(splits, key=lambda split: flops_per_token(shape, split))


class _Model:
    """A plan on N ranks, each on one GPU of a kind."""

    def __init__(self, plan: "Plan", ranks: int, gpu: Gpu) -> None:
        self.plan, self.ranks, self.gpu = plan, ranks, gpu
        self.name = plan.model.stack.name
        model = plan.model
        self.shape, self.stack = _stage(model.shape, model.stack, plan.sections, ranks)
        self.step = step_of(plan.sections, ranks)
        self.form: Form | None = None
        self.source: Source | None = None
        mixing = model.first_mixing
        if mixing is not None:
            self.form = mixing.form
            self.source = source_of(mixing.form, signs=mixing.spec.noise == "sign")
        inner = model.first_attention.inner_attention
        self.attention = "flex" if isinstance(inner, FlexAttention.Config) else "flash"
        streams = plan.sections.data.packing == "stream"
        self.packing = Packing(MEDIAN, SIGMA) if streams else None
        dims = ParallelDims.from_config(plan.sections.parallelism, ranks)
        self.stages = dims.pp
        self.data_ranks = dims.dp_replicate * dims.dp_shard
        self.global_rows = self.data_ranks * self.step.rows * self.step.microbatches

    def estimate(self) -> Estimate:
        seconds = self._seconds(self.step)
        steps = self.plan.sections.training.steps
        return Estimate(
            variant=self.name,
            flavor=self.plan.sections.model.flavor,
            form=self.form,
            gpu=self.gpu,
            ranks=self.ranks,
            recomputation=self.step.recomputation,
            local_batch_size=self.step.rows,
            global_batch_size=self.global_rows,
            memory=self._memory(self.step),
            received=step_bytes(self.shape, self.stack, self.step),
            seconds=seconds,
            launches=self.step.microbatches * self.shape.layers * _LAUNCHES_PER_LAYER,
            tokens_per_step=self.global_rows * self.step.length,
            days=steps * seconds.total / 86400,
            trained=trained(self.plan.model.shape, self.plan.phases, steps),
            alternatives=[self._alternative(mode) for mode in get_args(Recomputation)],
            assumptions=self._assumptions(),
        )

    def _memory(self, step: Step) -> StepMemory:
        return step_memory(self.shape, self.stack, step, self.form)

    def _fits(self, step: Step) -> bool:
        return self._memory(step).total <= self.gpu.available

    def _seconds(self, step: Step) -> speed.Seconds:
        received = step_bytes(self.shape, self.stack, step)
        return speed.step_seconds(
            self.shape,
            self.stack,
            step,
            received,
            self.gpu,
            source=self.source,
            attention=self.attention,
            packing=self.packing,
        )

    def _alternative(self, recomputation: str) -> Alternative:
        step = dataclasses.replace(self.step, recomputation=recomputation)
        tokens = self.global_rows * step.length
        return Alternative(
            recomputation=recomputation,
            memory=self._memory(step),
            fits=self._fits(step),
            tokens_per_s=tokens / self._seconds(step).total,
            largest_batch=self._largest_batch(step),
        )

    def _largest_batch(self, step: Step) -> int | None:
        """The largest local batch that fits, among those that divide a rank's share of the global
        batch if the run names one."""
        share, rows = self.global_rows // self.data_ranks, range(1, _MOST_ROWS + 1)
        if self.plan.sections.training.global_batch_size != -1:
            rows = [n for n in range(1, share + 1) if share % n == 0]
        fitting = [n for n in rows if self._fits(dataclasses.replace(step, rows=n))]
        return max(fitting, default=None)

    def _assumptions(self) -> list[str]:
        gpu, step = self.gpu, self.step
        said = [
            f"{gpu.name}: {_gib(gpu.memory)}, of which {_gib(gpu.available)} are for tensors; the "
            "rest is for CUDA, NCCL and fragments",
            f"{'compiled' if step.compiled else 'eager'} blocks and loss, FSDP2 in {step.dtype} "
            "with float32 masters and gradients",
            f"linears at {speed.PRODUCTS:.0%} of the peak of {gpu.flops / 1e12:,.0f} TFLOPS",
            self._documents(),
            self._mixer(),
            f"communication overlaps computation, at {speed.LINKS:.0%} of {gpu.link / 1e9:.0f} "
            f"GB/s within a node of {GPUS_PER_NODE} and of {NETWORK / 1e9:.0f} GB/s per GPU across",
            "no time for loading, launches, validation and saves",
        ]
        if self.shape.bias:
            said.append(
                "selective recomputation keeps every product with a bias, as torchtitan's does: "
                "what it recomputes takes no time here"
            )
        if self.stages > 1:
            said.append(
                "pipeline stages of equal size, without bubbles and communication between them"
            )
        if step.context > 1:
            said.append("context parallelism without its communication")
        if self.plan.sections.optimizer.name == "Muon":
            said.append("Muon is modeled as AdamW: it keeps one moment less, and computes longer")
        if self.plan.sections.quantize.recipe != "none":
            said.append("float8 is modeled as bfloat16")
        if self.plan.phases:
            said.append(
                "weights that are frozen for some steps are counted as trained in all steps"
            )
        return said

    def _documents(self) -> str:
        if self.packing is None:
            return "each row is one document"
        visible = f"{self.packing.visible(self.step.length):.0%} of the triangle of a row"
        if visible.startswith("100%"):
            return f"documents are longer than a row: {visible} is within one"
        return f"documents have a median of {MEDIAN} tokens, and {visible} is within them"

    def _mixer(self) -> str:
        said = []
        if self.stack.attends:
            rates = speed.ATTENTION[self.attention][self.shape.head_dim > 64]
            forward, backward = (f"{rate:.0%}" for rate in rates)
            said.append(
                f"attention is {self.attention}, at {forward} of the peak forward and {backward} "
                "backward"
            )
        if mixing_layers(self.shape, self.stack):
            drawn, turned = (COSTS[self.source, transposed] for transposed in (False, True))
            said.append(
                f"mixing matrices are {self.form}: {drawn.inside} instructions per element of a "
                f"tile forward and {turned.inside} backward, as compiled for an H100, which "
                "alternate with the tensor cores at their peak"
            )
        return "; ".join(said)


def _gib(size: int) -> str:
    return f"{size / 2**30:,.1f} GiB"

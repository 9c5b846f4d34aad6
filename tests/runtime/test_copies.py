import torch
from torchtitan.components.loss import IGNORE_INDEX

from mixit_titan.runtime.copies import start_copies


def test_a_copy_is_started_once_and_the_host_can_still_count() -> None:
    """What torchtitan's train_step does with a batch: it counts labels on the host, then asks for
    both on the device. A meta tensor stands for one on a GPU."""
    labels = torch.tensor([[3, IGNORE_INDEX, 5]])
    batches = iter([({"input": torch.tensor([[1, 3, 4]])}, labels)])
    ((inputs, given),) = start_copies(batches, torch.device("meta"))
    valid = torch.tensor(0, dtype=torch.int64)
    valid += (given != IGNORE_INDEX).sum()
    assert valid.item() == 2 and given.numel() == 3
    for tensor in (inputs["input"], given):
        copy = tensor.to("cuda")  # torchtitan's call: nothing is copied any more
        assert type(copy) is torch.Tensor and copy.device.type == "meta" and copy.shape == (1, 3)

"""Small convolutional network on JPEGs, with the Trainer of transformers; it can be killed.

    infeed serve examples/folder_csv_labels.yaml
    python examples/transformers_images.py 127.0.0.1:7470 pictures --epochs 10

The recipe has three parts for training: the dataset is the Trainer's loader, a callback saves the
dataset's state in each checkpoint, and `ignore_data_skip` leaves the position to that state. For
evaluation it has two: the label of an empty slot is -100, which loss and metrics ignore, and
`evaluate` computes both of them over all samples.
"""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import EvalPrediction, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_callback import ExportableState

from infeed.torch import FeedDataset


class FeedTrainer(Trainer):
    """A Trainer whose loaders are the datasets, which yield the whole batches of this rank."""

    def get_train_dataloader(self) -> Any:
        return self.train_dataset

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        return eval_dataset or self.eval_dataset

    def prediction_step(self, *arguments: Any, **options: Any) -> Any:
        _, logits, labels = super().prediction_step(*arguments, **options)
        return None, logits, labels  # the mean of the batches' losses would count empty slots


def evaluate(prediction: EvalPrediction) -> dict[str, float]:
    """Returns the loss and the accuracy of the samples of all ranks."""
    logits, labels = (torch.from_numpy(x) for x in prediction)
    right = (logits.argmax(1) == labels)[labels != -100]
    return {
        "loss": nn.functional.cross_entropy(logits, labels).item(),  # ignores -100
        "accuracy": right.float().mean().item(),
        "samples": len(right),
    }


class FeedState(TrainerCallback, ExportableState):
    """Saves the state of the dataset in each checkpoint, and continues there."""

    def __init__(self, dataset: FeedDataset) -> None:
        self.dataset = dataset

    def state(self) -> dict[str, Any]:
        """Returns what the Trainer writes to `trainer_state.json`."""
        return {"args": {}, "attributes": self.dataset.state_dict()}

    def on_train_begin(self, args: Any, state: Any, *_: Any, **__: Any) -> None:
        if not args.ignore_data_skip:
            raise ValueError("ignore_data_skip must be True: the state has the position already")
        if len(self.dataset) % args.gradient_accumulation_steps:
            raise ValueError(
                f"gradient_accumulation_steps must divide the {len(self.dataset)} batches of an "
                f"epoch, not {args.gradient_accumulation_steps}: a resumed epoch ends elsewhere"
            )
        if state.global_step:
            saved = state.stateful_callbacks.get(type(self).__name__)
            if saved is None:
                raise ValueError("the checkpoint has no state of the dataset")
            self.dataset.load_state_dict(saved["attributes"])
            print(f"continues at sample {saved['attributes']['cursor']['position']}", flush=True)


class Classifier(nn.Module):
    """A network with the fields of a batch as its arguments, as the Trainer calls it."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 5, stride=4),
            nn.ReLU(),
            nn.Conv2d(8, 16, 3, stride=2),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(16, classes),
        )

    def forward(self, image: torch.Tensor, label: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.layers(image.permute(0, 3, 1, 2))  # infeed's channels are last
        return {"loss": nn.functional.cross_entropy(logits, label.long()), "logits": logits}


def main() -> None:
    options = parse_arguments()
    torch.manual_seed(0)
    model = Classifier(options.classes)
    arguments = TrainingArguments(
        output_dir=str(options.output),
        num_train_epochs=options.epochs,
        learning_rate=0.001,
        save_steps=options.save_every,
        save_total_limit=2,
        logging_steps=1,
        eval_strategy="epoch",
        label_names=["label"],
        ignore_data_skip=True,
        disable_tqdm=True,
        report_to="none",
        use_cpu=not torch.cuda.is_available(),
    )
    # After the arguments: they initialize the process group, whose rank is the dataset's.
    dataset = FeedDataset(options.target, options.pipeline, epochs=1)
    validation = options.validation or options.pipeline
    evaluated = FeedDataset(
        options.target, validation, epochs=1, restart=True, empty={"label": -100}
    )
    with dataset, evaluated:
        trainer = FeedTrainer(
            model,
            arguments,
            train_dataset=dataset,
            eval_dataset=evaluated,
            compute_metrics=evaluate,
            callbacks=[FeedState(dataset)],
        )
        trainer.train(resume_from_checkpoint=last_checkpoint(options.output))
    print(f"weights {digest(model)}")


def last_checkpoint(output: Path) -> str | None:
    """Returns the last complete checkpoint: the Trainer writes its own state last."""
    written = output.glob("checkpoint-*/trainer_state.json")
    folders = sorted((file.parent for file in written), key=lambda x: int(x.name.split("-")[1]))
    return str(folders[-1]) if folders else None


def digest(model: nn.Module) -> str:
    """Returns a hash of all bits of the weights."""
    hashed = hashlib.sha256()
    for parameter in model.parameters():
        hashed.update(parameter.detach().cpu().numpy().tobytes())
    return hashed.hexdigest()[:16]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("target", help="address of the server")
    parser.add_argument("pipeline", help="name of a pipeline with the fields image and label")
    parser.add_argument("--validation", help="name of its pipeline; default: the training's")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--output", type=Path, default=Path("transformers_images"))
    parser.add_argument("--save-every", type=int, default=10, metavar="STEPS")
    return parser.parse_args()


if __name__ == "__main__":
    main()

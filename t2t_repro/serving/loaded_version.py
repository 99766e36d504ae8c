"""Version of a model in memory, with a queue for each of its signatures."""

import pathlib
from collections.abc import Callable

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401, registers the operations of its graph

from t2t_repro.serving import (
    batching,
    request_errors,
    saved_model,
    warm_up,
)


class LoadedVersion:
    """Model of one version, in memory."""

    def __init__(self, folder: pathlib.Path):
        """Load the version and run its warm-up requests: this takes seconds."""
        self.version = int(folder.name)
        self.card = saved_model.read_verified_card(folder)
        self.signature_defs = dict(saved_model.read_graph(folder).signature_def)
        self._model = saved_model.load(folder)
        self._queues: dict[str, batching.Queue] = {}
        for request in warm_up.read(folder):
            self.run(
                request.model_spec.signature_name or "serving_default",
                {
                    name: list(tensor.string_val)
                    for name, tensor in request.inputs.items()
                },
            )

    def input_names(self, signature: str) -> list[str]:
        """Return the names of a signature's inputs, sorted.

        Raises:
            RequestError: there is no such signature.
        """
        if signature not in self._model.signatures:
            raise request_errors.invalid(
                f'Serving signature name: "{signature:.100}" not found in '
                "signature def; there are "
                f"{', '.join(sorted(self._model.signatures))}."
            )
        return sorted(self.signature_defs[signature].inputs)

    def run(self, signature: str, inputs: batching.Inputs) -> batching.Outputs:
        """Run a batch in this thread."""
        # dtype object: NumPy's strings would lose NULs at their end.
        tensors = {
            name: tf.constant(np.array(values, object))
            for name, values in inputs.items()
        }
        outputs = self._model.signatures[signature](**tensors)
        return {name: tensor.numpy() for name, tensor in outputs.items()}

    def queue(
        self,
        signature: str,
        new_queue: Callable[
            [Callable[[batching.Inputs], batching.Outputs], str], batching.Queue
        ],
    ) -> batching.Queue:
        """Return the queue of a signature.

        Args:
            signature: name of the signature.
            new_queue: called once with the function that runs a batch, and the
                signature.
        """
        if signature not in self._queues:
            self._queues[signature] = new_queue(
                lambda inputs: self.run(signature, inputs), signature
            )
        return self._queues[signature]

    async def close(self) -> None:
        """Answer the requests that wait for this version."""
        for queue in self._queues.values():
            await queue.close()

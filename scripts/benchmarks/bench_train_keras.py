"""Process of bench_train that trains the Transformer of a Keras library.

    python -m scripts.benchmarks.bench_train_keras FILE.npz SETTINGS

The library is keras-hub, or tf-models-official, which needs an environment of
its own with TensorFlow 2.19 and Keras 2. The batches are those of
padded_batches. The program prints one JSON object: the seconds of each step,
real tokens of all steps, and the highest memory.
"""

import json
import sys

import tensorflow as tf

from scripts.benchmarks import harness, padded_batches
from scripts.benchmarks.padded_batches import PAD

SETTINGS = json.loads(sys.argv[2])
IDS = tf.TensorSpec([None, None], tf.int64)


def keras_hub():
    """Return a function of a batch that returns logits, and its variables.

    keras-hub's layers also drop attention weights.
    """
    import keras_hub

    layers, width = keras_hub.layers, SETTINGS["hidden_size"]
    settings = {
        "intermediate_dim": SETTINGS["filter_size"],
        "num_heads": SETTINGS["num_heads"],
        "dropout": SETTINGS["dropout"],
    }
    count = SETTINGS["num_hidden_layers"]
    embedding = layers.ReversibleEmbedding(
        SETTINGS["vocab_size"],
        width,
        embeddings_initializer=tf.keras.initializers.RandomNormal(
            stddev=width**-0.5
        ),
        reverse_dtype="float32",
    )
    positions = layers.SinePositionEncoding()
    dropout = tf.keras.layers.Dropout(SETTINGS["dropout"])
    encoders = [layers.TransformerEncoder(**settings) for _ in range(count)]
    decoders = [layers.TransformerDecoder(**settings) for _ in range(count)]

    def embed(ids):
        x = embedding(ids) * width**0.5
        return dropout(x + positions(x), training=True)

    def logits(inputs, shifted, targets):
        kept, x = inputs != PAD, embed(inputs)
        for layer in encoders:
            x = layer(x, padding_mask=kept, training=True)
        y = embed(shifted)
        for layer in decoders:
            y = layer(y, x, encoder_padding_mask=kept, training=True)
        return embedding(y, reverse=True)

    layers = [embedding, *encoders, *decoders]
    return logits, lambda: [v for x in layers for v in x.trainable_variables]


def tf_models():
    """Return a function of a batch that returns logits, and its variables.

    Layers normalize their inputs, as by default: with normalized outputs, the
    decoder fails in bfloat16.
    """
    from official.nlp.modeling import models

    settings = {
        "num_layers": SETTINGS["num_hidden_layers"],
        "num_attention_heads": SETTINGS["num_heads"],
        "intermediate_size": SETTINGS["filter_size"],
        "dropout_rate": SETTINGS["dropout"],
    }
    model = models.Seq2SeqTransformer(
        SETTINGS["vocab_size"],
        SETTINGS["hidden_size"],
        SETTINGS["dropout"],
        encoder_layer=models.TransformerEncoder(**settings),
        decoder_layer=models.TransformerDecoder(**settings),
    )

    def logits(inputs, shifted, targets):
        return model({"inputs": inputs, "targets": targets}, training=True)

    return logits, lambda: model.trainable_variables


def build_step(logits, variables):
    """Return a function of a batch that updates the variables.

    Neither library trains faster with XLA here, since it would compile every
    shape of a batch.
    """
    adam = tf.keras.optimizers.Adam(1e-4, beta_2=0.98, epsilon=1e-9)
    smoothing = SETTINGS["label_smoothing"]

    @tf.function(input_signature=[IDS, IDS, IDS])
    def step(inputs, shifted, targets):
        weights = tf.cast(targets != PAD, tf.float32)
        with tf.GradientTape() as tape:
            scores = tf.cast(logits(inputs, shifted, targets), tf.float32)
            labels = tf.one_hot(targets, SETTINGS["vocab_size"])
            labels = labels * (1 - smoothing)
            labels += smoothing / SETTINGS["vocab_size"]
            losses = tf.nn.softmax_cross_entropy_with_logits(labels, scores)
            loss = tf.reduce_sum(losses * weights) / tf.reduce_sum(weights)
        gradients = tape.gradient(loss, variables())
        adam.apply_gradients(zip(gradients, variables(), strict=True))
        return loss

    return step


def main():
    tf.config.threading.set_intra_op_parallelism_threads(SETTINGS["threads"])
    tf.config.threading.set_inter_op_parallelism_threads(SETTINGS["threads"])
    if SETTINGS["dtype"] == "bfloat16":
        tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")
    libraries = {"keras-hub": keras_hub, "tf-models": tf_models}
    logits, variables = libraries[SETTINGS["library"]]()
    batches = padded_batches.make(sys.argv[1], SETTINGS["batch_tokens"])
    logits(*map(tf.constant, batches[0]))  # builds the layers
    step = build_step(logits, variables)
    measured = padded_batches.time_steps(
        lambda batch: float(step(*map(tf.constant, batch))), batches, SETTINGS
    )
    print(
        json.dumps(measured | {"peak megabytes": harness.peak_megabytes()}),
        flush=True,
    )


if __name__ == "__main__":
    main()

"""Process of the peers of benchmarks: PyTorch, CTranslate2, Hugging Face.

harness.measure_in_process() runs it with a Python that has the peer's library,
which may lack all other packages of this project. It prints one JSON value.
"""

import functools
import json
import math
import pathlib
import time
from typing import Any, NamedTuple

import numpy as np

from scripts.benchmarks import harness

PAD, BOS = 0, 2

# PyTorch's nn.Transformer in training, on batches of pairs of similar lengths.


def train_pytorch(settings):
    """Return seconds of steps, real tokens of all, and the highest memory.

    Args:
        settings: "arrays", a path for make_batches(); "compiled", whether
            torch.compile compiles model and loss; and those of the model.
    """
    import torch

    torch.set_num_threads(settings["threads"])
    torch.set_float32_matmul_precision("high")  # TF32, if the GPU supports it
    torch.manual_seed(0)
    device = settings["device"]
    parts, loss_of = nn_transformer(settings, device)
    adam = torch.optim.Adam(
        parts.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9
    )
    if settings.get("compiled"):
        loss_of = torch.compile(loss_of)
    batches = make_batches(settings["arrays"], settings["batch_tokens"])
    half = settings["dtype"] == "bfloat16"

    def step(batch):
        masks = [padding(ids) for ids in batch[:2]]  # looked up on the CPU
        inputs, shifted, targets = (ids.to(device) for ids in batch)
        masks = [mask if mask is None else mask.to(device) for mask in masks]
        adam.zero_grad()
        with torch.autocast(device, torch.bfloat16, enabled=half):
            loss = loss_of(inputs, shifted, targets, *masks)
        loss.backward()
        adam.step()
        if device == "cuda":
            torch.cuda.synchronize()

    seconds, tokens = [], 0
    for number in range(settings["warm_up"] + settings["steps"]):
        batch = batches[number % len(batches)]
        start = time.perf_counter()
        step(batch)
        if number >= settings["warm_up"]:
            seconds.append(time.perf_counter() - start)
            sides = batch.inputs, batch.targets
            tokens += sum(int((side != PAD).sum()) for side in sides)
    return {
        "seconds": seconds,
        "tokens": tokens,
        "peak megabytes": torch.cuda.max_memory_allocated() / 1e6
        if device == "cuda"
        else harness.peak_megabytes(),
        "machine": f"PyTorch {torch.__version__}",
    }


def nn_transformer(settings, device):
    """Return modules, and the loss as a function of ids and masks of padding.

    Embeddings are tied, positions are sinusoids, and elements are dropped where
    the paper's model does (section 5.4). By default, nn.Transformer also drops
    attention weights and elements within the feed-forward network, which is
    more work: with dropout, scaled_dot_product_attention stores all weights on
    a CPU.
    """
    import torch
    from torch import nn

    width, layers = settings["hidden_size"], settings["num_hidden_layers"]
    embedding = nn.Embedding(settings["vocab_size"], width)
    nn.init.normal_(embedding.weight, std=width**-0.5)
    dropout = nn.Dropout(settings["dropout"])
    transformer = nn.Transformer(
        width,
        settings["num_heads"],
        layers,
        layers,
        settings["filter_size"],
        settings["dropout"],
        batch_first=True,
    )
    for layer in (*transformer.encoder.layers, *transformer.decoder.layers):
        layer.dropout = nn.Identity()  # of the hidden layer
        layer.self_attn.dropout = 0.0
        if hasattr(layer, "multihead_attn"):
            layer.multihead_attn.dropout = 0.0
    positions = torch.arange(settings["max_length"] + 1)[:, None]
    rates = torch.exp(torch.arange(0, width, 2) * (-math.log(10_000.0) / width))
    table = torch.empty(len(positions), width)
    table[:, 0::2] = torch.sin(positions * rates)
    table[:, 1::2] = torch.cos(positions * rates)
    table = table.to(device)
    cross_entropy = nn.CrossEntropyLoss(
        ignore_index=PAD, label_smoothing=settings["label_smoothing"]
    )

    def embed(ids):
        return dropout(embedding(ids) * width**0.5 + table[: ids.shape[1]])

    def loss_of(inputs, shifted, targets, inputs_padding, shifted_padding):
        length = shifted.shape[1]
        future = torch.ones(length, length, dtype=torch.bool, device=device)
        hidden = transformer(
            embed(inputs),
            embed(shifted),
            tgt_mask=future.triu(1),
            src_key_padding_mask=inputs_padding,
            tgt_key_padding_mask=shifted_padding,
            memory_key_padding_mask=inputs_padding,
            tgt_is_causal=True,
        )
        logits = hidden @ embedding.weight.t()
        return cross_entropy(logits.flatten(0, 1), targets.flatten())

    return nn.ModuleList([embedding, transformer]).to(device), loss_of


def padding(ids):
    """Return the mask of padding; None without any, for faster attention."""
    mask = ids == PAD
    return mask if mask.any() else None


class Batch(NamedTuple):
    """Padded ids [B, L] or [B, T] int64."""

    inputs: Any
    shifted: Any  # targets after BOS, without EOS
    targets: Any


def make_batches(path: str, batch_tokens: int) -> list[Batch]:
    """Return the pairs of a file in batches, in random order.

    Pairs are sorted by length and cut into batches of so many target tokens,
    which gives the least padding that a model without packing can have. The
    .npz file has inputs and targets as flat ids, and their lengths.
    """
    arrays = np.load(path)
    sides = (
        np.split(arrays[side], np.cumsum(arrays[f"{side}_lengths"])[:-1])
        for side in ("inputs", "targets")
    )
    pairs = list(zip(*sides, strict=True))
    pairs.sort(key=lambda pair: (len(pair[1]), len(pair[0])))
    batches, batch = [], []
    for pair in pairs:
        batch.append(pair)
        if sum(len(targets) for _, targets in batch) >= batch_tokens:
            batches.append(batch)
            batch = []
    np.random.default_rng(0).shuffle(batches)
    return [
        Batch(
            _pad([inputs for inputs, _ in batch]),
            _pad([np.append(BOS, targets[:-1]) for _, targets in batch]),
            _pad([targets for _, targets in batch]),
        )
        for batch in batches
    ]


def _pad(sentences):
    import torch

    return torch.nn.utils.rnn.pad_sequence(
        [torch.from_numpy(np.asarray(ids, np.int64)) for ids in sentences],
        batch_first=True,
        padding_value=PAD,
    )


# Searches.


def open_ctranslate2(settings):
    """Open a folder that serving/exporting.py wrote."""
    import ctranslate2

    is_gpu = settings.get("device") == "gpu"
    return ctranslate2.Translator(
        settings["folder"],
        device="cuda" if is_gpu else "cpu",
        compute_type="float16" if is_gpu else "float32",
        inter_threads=settings.get("workers", 1),
        intra_threads=settings.get("threads", 0),
    )


def ctranslate2_search(model, settings):
    """Return a search at one forced output length, a batch for each worker."""
    folder = pathlib.Path(settings["folder"])
    names = json.loads((folder / "shared_vocabulary.json").read_text())
    rows = harness.random_inputs(settings)[:, :-1]  # CTranslate2 adds EOS
    source = [[names[i] for i in row] for row in rows]
    return lambda: model.translate_batch(
        source * settings.get("workers", 1),
        max_batch_size=settings["batch"],
        beam_size=settings["beam_size"],
        min_decoding_length=settings["length"],
        max_decoding_length=settings["length"],
    )


def cpu_seconds_of_ctranslate2(settings):
    """Return CPU seconds of searches at one forced output length."""
    search = ctranslate2_search(open_ctranslate2(settings), settings)
    clock = time.process_time
    return harness.time_calls(search, settings["times"], clock=clock)


def search_ctranslate2(settings):
    """Return seconds and memory of searches at one forced output length."""
    search = ctranslate2_search(open_ctranslate2(settings), settings)
    return harness.time_and_memory(search, settings["times"])


def batches_of_ctranslate2(settings):
    """Return {batch: seconds} of searches at one forced output length."""
    model = open_ctranslate2(settings)
    return harness.time_batches(
        functools.partial(ctranslate2_search, model), settings
    )


def translate_ctranslate2(settings):
    """Translate a file; return seconds and texts."""
    import sentencepiece

    model = open_ctranslate2(settings)
    pieces = sentencepiece.SentencePieceProcessor(
        model_file=f"{settings['folder']}/vocab.model"
    )
    lines = pathlib.Path(settings["inputs"]).read_text("utf-8").splitlines()

    def translate(lines):
        results = model.translate_batch(
            pieces.Encode(lines, out_type=str),
            max_batch_size=settings["batch"],
            beam_size=settings["beam_size"],
            length_penalty=settings["length_penalty"],
            # The default of 1 removes EOS from the first softmax.
            min_decoding_length=0,
        )
        return pieces.Decode([result.hypotheses[0] for result in results])

    translate(lines[: settings["batch"]])
    start = time.perf_counter()
    texts = translate(lines)
    return {"seconds": time.perf_counter() - start, "texts": texts}


def batches_of_marian(settings):
    """Return {batch: seconds} of Hugging Face's Marian of the same size."""
    import torch
    import transformers

    is_gpu = settings["device"] == "gpu"
    device = "cuda" if is_gpu else "cpu"
    config = transformers.MarianConfig(
        **transformers_shape(settings),
        pad_token_id=PAD,
        eos_token_id=harness.EOS,
        decoder_start_token_id=PAD,
        forced_eos_token_id=None,
    )
    model = transformers.MarianMTModel(config).eval()
    model = model.to(device, torch.float16 if is_gpu else torch.float32)

    def search_of(settings):
        ids = torch.from_numpy(harness.random_inputs(settings)).long()
        return generation(model, ids.to(device), settings)

    return harness.time_batches(search_of, settings)


def transformers_shape(settings):
    """Return the settings of a model in transformers' names."""
    return {
        f"{side}_{name}": settings[setting]
        for side in ("encoder", "decoder")
        for name, setting in (
            ("layers", "num_hidden_layers"),
            ("attention_heads", "num_heads"),
            ("ffn_dim", "filter_size"),
        )
    } | {
        "vocab_size": settings["vocab_size"],
        "d_model": settings["hidden_size"],
    }


def generation(model, ids, settings, **arguments):
    """Return a call of generate() at one forced output length."""
    length = settings["length"]
    return lambda: model.generate(
        ids,
        num_beams=settings["beam_size"],
        do_sample=False,
        min_new_tokens=length,
        max_new_tokens=length,
        **arguments,
    ).cpu()


def write_m2m_100(settings):
    """Write a random model of the type of M2M-100, in several files."""
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.M2M100Config(**transformers_shape(settings))
    model = transformers.M2M100ForConditionalGeneration(config)
    model.save_pretrained(settings["folder"], max_shard_size="500MB")


def translate_m2m_100(settings):
    """Return seconds of searches, and the memory before and after them."""
    import torch
    import transformers

    torch.set_num_threads(settings["threads"])
    model = transformers.M2M100ForConditionalGeneration.from_pretrained(
        settings["folder"]
    ).eval()
    loaded = harness.peak_megabytes()
    ids = torch.from_numpy(harness.random_inputs(settings)).long()
    ids[:, -1] = model.config.eos_token_id
    search = generation(model, ids, settings, forced_bos_token_id=BOS + 1)
    return harness.time_and_memory(search, settings["times"]) | {
        "loaded megabytes": loaded
    }


if __name__ == "__main__":
    harness.run_measurement(
        {
            "train": train_pytorch,
            "CPU seconds": cpu_seconds_of_ctranslate2,
            "search": search_ctranslate2,
            "file": translate_ctranslate2,
            "CTranslate2 batches": batches_of_ctranslate2,
            "Marian batches": batches_of_marian,
            "write M2M-100": write_m2m_100,
            "translate M2M-100": translate_m2m_100,
        }
    )

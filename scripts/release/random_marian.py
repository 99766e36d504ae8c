"""Random MarianMTModels of transformers, for comparisons with the importer."""

import torch
import transformers


def build(vocab_size, seed, eos_bias=None, **settings):
    """Return a MarianMTModel whose last token is PAD, and the first EOS.

    Args:
        vocab_size: V.
        seed: seed of the weights.
        eos_bias: bias of EOS's logit, with which outputs differ in length;
            biases and norms are then random, too. None: transformers' initial
            weights.
        **settings: further arguments of MarianConfig.
    """
    config = transformers.MarianConfig(
        vocab_size=vocab_size,
        pad_token_id=vocab_size - 1,
        decoder_start_token_id=vocab_size - 1,
        eos_token_id=0,
        forced_eos_token_id=0,
        bad_words_ids=[[vocab_size - 1]],
        **settings,
    )
    torch.manual_seed(seed)
    model = transformers.MarianMTModel(config).eval()
    model.generation_config.num_beams = 4
    if eos_bias is None:
        return model
    with torch.no_grad():
        for path, weight in model.named_parameters():
            if path.endswith("bias") or "layer_norm" in path:
                weight.add_(0.3 * torch.randn_like(weight))
        model.final_logits_bias.normal_(0, 0.5)
        model.final_logits_bias[0, 0] = eos_bias
    return model

"""Variants of recurrent models: an hparams set, and changes of it."""

VARIANTS = {
    "lstm": ("gnmt_tiny", {"num_encoder_layers": 4, "num_decoder_layers": 3}),
    "gru": (
        "gnmt_tiny",
        {
            "cell": "gru",
            "num_bidirectional_layers": 0,
            "attention_hops": 3,
            "attention_size": 5,
        },
    ),
    "dot_product": (
        "gnmt_tiny",
        {"num_bidirectional_layers": 2, "attention_type": "dot_product"},
    ),
    "deep_att": ("deep_att_tiny", {"num_encoder_layers": 3}),
}

"""Layout of table2_rivals: systems beside those of the paper, and verdicts."""

import statistics

from scripts.paper import rival_rows, table_layout, verdicts
from t2t_repro.evaluation.published import TABLE_2, Table2Row

# The search whose speed is measured, as the decoder searches a file.
DECODING = {
    "beam_size": 4,
    "batch": 32,
    "length": 20,  # subwords of inputs and outputs
    "threads": 2,
    "intra_threads": 1,
    "times": 5,
}


def summarize(results, score, pair) -> list[dict]:
    """Return statistics, costs and verdicts, a dict per row."""
    rows = table_layout.by_row(results)
    judged = judge(rows, score, pair)
    return [
        {
            "row": name,
            "hparams_set": rival_rows.SYSTEMS[name].hparams_set,
            "seeds": [result["seed"] for result in row_results],
            **table_layout.statistics_of_seeds(
                row_results, score, "bleu", "perplexity"
            ),
            "parameters": row_results[0]["figures"]["parameters"],
            "training_flops": row_results[0]["figures"]["training_flops"],
            "minutes": [result["minutes"] for result in row_results],
            "converged": table_layout.converged(row_results),
            **({"claim": judged[name]._asdict()} if name in judged else {}),
        }
        for name, row_results in rows.items()
    ]


def judge(rows, score, pair) -> dict[str, verdicts.Verdict]:
    """Judge the paper's differences between rivals and the Transformer.

    Args:
        rows: {system: results of its seeds}.
        score: the score that is compared with the paper's BLEU.
        pair: languages, as "ende".

    Returns:
        {system: Verdict}; empty while the noise between seeds is unknown.
    """
    published = TABLE_2.get(pair, {})
    bleu = {
        name: published[system.published].bleu
        for name, system in rival_rows.SYSTEMS.items()
        if system.published in published and name in rows
    }
    base = rival_rows.TRANSFORMER
    if base not in bleu or not any(len(seeds) > 1 for seeds in rows.values()):
        return {}
    claims = {n: value - bleu[base] for n, value in bleu.items() if n != base}
    ours = {
        name: verdicts.Row(
            table_layout.values_of_seeds(row_results, score),
            table_layout.converged(row_results),
        )
        for name, row_results in rows.items()
    }
    return verdicts.judge(ours, base, claims) if claims else {}


COLUMNS = (
    "system",
    "paper: BLEU",
    "paper: FLOPs",
    "BLEU",
    "sacreBLEU",
    "minus Transformer, 95% interval",
    "perplexity",
    "10⁶ parameters",
    "FLOPs",
    "minutes",
    "sentences/s",
    "sequential operations of a layer",
)


def lay_out(results, score, pair, speeds) -> str:
    """Format the systems in Markdown, beside the paper's.

    Args:
        results: of all rows.
        score: the score that is compared with the paper's BLEU.
        pair: languages, as "ende".
        speeds: {system: sentences a second}.
    """
    rows = table_layout.by_row(results)
    judged = judge(rows, score, pair)
    published = TABLE_2.get(pair, {})
    spread, converged = table_layout.spread_of_seeds, table_layout.converged
    lines = [
        (
            name + ("" if converged(row_results) else " (not converged)"),
            *_published(published.get(rival_rows.SYSTEMS[name].published)),
            *(spread(row_results, figure, 2) for figure in (score, "bleu")),
            _difference(judged.get(name)),
            spread(row_results, "perplexity", 2),
            f"{row_results[0]['figures']['parameters'] / 1e6:.1f}",
            f"{row_results[0]['figures']['training_flops']:.2g}",
            f"{statistics.fmean(r['minutes'] for r in row_results):.0f}",
            table_layout.number(speeds.get(name), 1),
            rival_rows.SYSTEMS[name].sequential,
        )
        for name, row_results in rows.items()
    ]
    first = results[0]
    return (
        f"{table_layout.markdown(COLUMNS, lines)}\n\n"
        f"Ours: {first['problem']}, {first['split']} split; BLEU is {score} "
        f"{first['figures']['signatures'][score]}; "
        f"{first['mixed_precision']}; mean and range of seeds; "
        f"{', '.join(sorted({r['machine'] for r in results}))}; "
        f"{', '.join(sorted({r['date'] for r in results}))}. A system that has "
        "not converged was ended by its budget of minutes, before it had the "
        "FLOPs of the others. Published: newstest2014. Sentences/s: random "
        f"weights, beam {DECODING['beam_size']}, batches of "
        f"{DECODING['batch']} with {DECODING['length']} subwords on both "
        f"sides, {DECODING['threads']} threads.\n"
    )


def _published(row: Table2Row | None) -> tuple[str, str]:
    if row is None:
        return "", ""
    return f"{row.bleu}", "" if row.flops is None else f"{row.flops:.1e}"


def _difference(verdict: verdicts.Verdict | None) -> str:
    if verdict is None:
        return ""
    low, high = verdict.interval
    return (
        f"{verdict.difference:+.2f} ({low:+.2f} to {high:+.2f}); paper "
        f"{verdict.paper:+.2f}: {verdict.verdict}"
    )

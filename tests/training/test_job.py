"""Notes at the start of a training."""

from t2t_repro.training import job


def test_data_without_the_longest_allowed_pairs_is_noted(capsys):
    job._note_shorter_data(256, 256)
    assert capsys.readouterr().out == ""
    job._note_shorter_data(512, 256)
    printed = capsys.readouterr().out
    assert "allow max_length=512, but the data has no training pairs" in printed
    assert "above 256 subwords" in printed

"""Files of text for problems, such as parallel_text."""


def write(folder, splits, languages):
    """Write {split: pairs of lines} as SPLIT.LANGUAGE; return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, pairs in splits.items():
        sides = zip(*pairs, strict=True)
        for language, lines in zip(languages, sides, strict=True):
            text = "".join(f"{line}\n" for line in lines)
            (folder / f"{split}.{language}").write_text(text, "utf-8")
    return folder

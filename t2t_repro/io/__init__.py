"""Files: atomic writes, copies of object stores, progress and downloads."""

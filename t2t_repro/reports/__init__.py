"""Reports: scores, curves and pages of what was trained."""

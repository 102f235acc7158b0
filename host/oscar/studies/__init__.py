"""Compare methods on the gradients of one training run, and say what came out.

`run_experiment` returns a plain dict, the content of results.json; tables and figures are made of that dict
alone, so that they can be made again without running anything.
"""

from oscar.studies.comparison import WARM_UP, run_experiment
from oscar.studies.comparison_table import markdown_table, text_table

__all__ = ["WARM_UP", "markdown_table", "run_experiment", "text_table"]

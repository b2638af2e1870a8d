"""Prints the ready Hugging Face directory of a model; downloads and converts it first where needed."""

import argparse
import os
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

from backend.checkpoint.default_model import DEFAULT, ensure  # noqa: E402
from backend.checkpoint.errors import CheckpointError  # noqa: E402


def main() -> int:
    """Exit status: 0, or 2 with one line on stderr."""
    cache = os.environ.get("INFLIGHT_CACHE_DIR") or REPOSITORY / ".cache" / "models"
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=DEFAULT, help="%(default)s, a GGUF file or a Hugging Face directory")
    parser.add_argument("--cache-dir", type=Path, default=Path(cache), help="where models are kept (%(default)s)")
    options = parser.parse_args()
    try:
        print(ensure(options.model, options.cache_dir).absolute())
    except CheckpointError as error:
        print(f"prepare_model: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

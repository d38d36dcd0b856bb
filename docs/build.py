"""Builds the documentation site into site/, without network: ``make docs``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from docs import (
    generate_benchmarks,
    generate_compatibility,
    generate_file_map,
    generate_growth,
    generate_pictures,
    generate_reference,
)

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    """Write the generated pages and pictures, then the site."""
    generate_benchmarks.main()
    generate_growth.main()
    generate_compatibility.main()
    generate_file_map.TARGET.write_text(generate_file_map.page())
    generate_reference.main()
    generate_pictures.main()
    program = Path(sys.executable).parent / "zensical"
    done = subprocess.run([str(program), "build", "-f", "mkdocs.yml"], cwd=ROOT, check=False)
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()

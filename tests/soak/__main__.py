"""``make soak``: at least a hundred kills under load, then the judgement."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from tests.soak.run import soak


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=134, help="three of four are kills")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--durability", default="group")
    parser.add_argument("--without-java", action="store_true", help="no verifiable clients")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="shoal-soak-") as directory:
        result = soak(
            Path(directory),
            plan=options.faults,
            seed=options.seed,
            durability=options.durability,
            verifiable=not options.without_java,
            transfers=True,
            disk_bytes=512 << 20,
        )
    anomalies = result.pop("anomalies")
    print(json.dumps(result | {"seed": options.seed, "anomalies": len(anomalies)}))
    for anomaly in anomalies[:20]:
        print(anomaly, file=sys.stderr)
    return 1 if anomalies else 0


if __name__ == "__main__":
    sys.exit(main())

"""What a start had to cut or step over, for whoever reads the log of the process."""

from __future__ import annotations

import logging

from shoal.log.loading import RecoveryReport

logger = logging.getLogger("shoal.log.directory")


def tell(report: RecoveryReport) -> None:
    """One line for every loss; none if there was none."""
    for cut in report.cuts:
        logger.error(
            "%s: cut %d bytes at %d of %s (%s); kept in %s",
            report.topic_partition,
            cut.size_bytes,
            cut.position,
            cut.path,
            cut.reason,
            cut.quarantine or "no file, they were zeros",
        )
    for bad in report.corrupt:
        logger.error(
            "%s: offsets %d to %d are corrupt (%s), bytes %d to %d of segment %d; "
            "nothing was deleted, run `shoal log verify`",
            report.topic_partition,
            bad.start_offset,
            bad.end_offset,
            bad.reason,
            bad.position,
            bad.end_position,
            bad.segment_base,
        )

"""A Spark driver that writes exactly once, and kills itself at one step of the sink's protocol.

    python killing_driver.py SERVERS IN OUT CHECKPOINT GROUP [--kill STEP] [--tasks N] [--rows N]
                             [--master M] [--first FATE --notes DIRECTORY] [--set name=value]

Steps: ``task`` (a task has prepared its rows), ``claim``, ``decision``, ``end`` (of the second
transaction), ``done``, ``spark`` (Spark has not noted the commit yet). The driver dies just before
that step, and the process with it that was about to take it.

Fates of the first attempt of task 0 in the first micro-batch, when it has prepared its rows:
``executor`` (it is killed with its executor), ``slow`` (it does not end for a minute), ``stopped``
(it stops, as does its executor; somebody may wake it up later). It leaves its process id, and that
of its executor, in the file ``first`` of DIRECTORY.
"""

from __future__ import annotations

import argparse
import os
import signal
from typing import Any

from shoal.spark import session
from shoal.spark.source import ShoalDataSource

SHORT_JOBS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def source(
    group: int, step: str | None, fate: str | None, notes: str | None
) -> type[ShoalDataSource]:
    """The data source, with a hook in it; Spark ships the class to its processes as it is."""

    def meet_fate() -> None:
        import time
        from pathlib import Path

        stat = Path(f"/proc/{os.getppid()}/stat").read_text()
        executor = int(stat.rpartition(")")[2].split()[1])
        assert notes is not None
        draft = Path(notes, "draft")
        draft.write_text(f"{os.getpid()} {executor}")
        draft.rename(Path(notes, "first"))
        if fate == "executor":
            os.kill(executor, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        elif fate == "slow":
            time.sleep(60)
        elif fate == "stopped":
            os.kill(executor, signal.SIGSTOP)
            os.kill(os.getpid(), signal.SIGSTOP)

    def kill(at: str) -> None:
        if at == step:
            os.killpg(group, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)  # workers have groups of their own

    class KillingSource(ShoalDataSource):
        def streamWriter(self, schema: Any, overwrite: bool) -> Any:
            from shoal.spark import exactly_once
            from shoal.spark.writer import StreamWriter

            real_append = exactly_once.SinkDriver._append
            real_end = vars(exactly_once)["end_transaction"]
            appended: list[str] = []
            ended: list[bool] = []

            def append(driver: Any, kind: str, value: bytes | None) -> int | None:
                appended.append(kind)
                kill(("claim", "decision", "done")[len(appended) - 1])
                return real_append(driver, kind, value)

            async def end(*arguments: Any, commit: bool) -> None:
                ended.append(commit)
                if len(ended) == 2:
                    kill("end")
                await real_end(*arguments, commit=commit)

            real_check = exactly_once.PreparedTask._check_in_time

            def check(task: Any) -> None:
                """Before the first row, and when all are prepared."""
                origin = task._origin
                if task._sent and (origin.task, origin.attempt, origin.batch_id) == (0, 0, 0):
                    meet_fate()
                real_check(task)

            class KillingWriter(StreamWriter):
                def write(self, iterator: Any) -> Any:
                    if fate is not None:
                        hooked: Any = exactly_once
                        hooked.PreparedTask._check_in_time = check
                    message = super().write(iterator)
                    if message.report.task == 0:
                        kill("task")
                    return message

                def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803 - as above
                    hooked: Any = exactly_once
                    hooked.SinkDriver._append = append
                    hooked.end_transaction = end
                    # One after the other, so that "the second" means something.
                    hooked._ENDS_AT_ONCE = 1
                    try:
                        super().commit(messages, batchId)
                    finally:
                        exactly_once.SinkDriver._append = real_append  # type: ignore[method-assign]
                        hooked.end_transaction = real_end
                    kill("spark")

            return KillingWriter.create(self._given(schema), schema, overwrite=overwrite)

    return KillingSource


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("servers", "topic", "out", "checkpoint", "group"):
        parser.add_argument(name)
    parser.add_argument("--kill")
    parser.add_argument("--tasks", default="2")
    parser.add_argument("--rows", default="60")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--first", choices=("executor", "slow", "stopped"))
    parser.add_argument("--notes")
    parser.add_argument("--set", action="append", default=[])
    given = parser.parse_args()
    settings = {"spark.master": given.master, "spark.driver.extraJavaOptions": SHORT_JOBS}
    settings |= dict(one.split("=", 1) for one in given.set)
    spark = session("killing", cores=2, quiet=True, settings=settings)
    spark.dataSource.register(source(os.getpgid(0), given.kill, given.first, given.notes))
    frame = (
        spark.readStream.format("shoal")
        .option("kafka.bootstrap.servers", given.servers)
        .option("subscribe", given.topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", given.rows)
        .option("minPartitions", given.tasks)
        .option("maxTasks", given.tasks)
        .option("groupId", given.group)
        .load()
        .select("key", "value")
    )
    query = (
        frame.writeStream.format("shoal")
        .option("kafka.bootstrap.servers", given.servers)
        .option("topic", given.out)
        .option("exactlyOnce", "true")
        .option("checkpointLocation", given.checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    print("done", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()

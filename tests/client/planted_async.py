"""Bugs planted in the awaitable producer and admin, see ``tests/planted``."""

from __future__ import annotations

from tests.planted.bugs import PlantedBug

FILE = "client/async_producer.py"


def _by(which: str) -> str:
    """The tests whose names contain ``which``, against our broker alone."""
    return f"tests/client/test_async_producer.py -m 'not kafka' -k '{which}'"


def _cut(which: str) -> str:
    return f"tests/simulation/test_cancelling.py -k '{which}'"


PLANTED = (
    PlantedBug(
        "who comes later overtakes who waits to send",
        FILE,
        "        if topic in self._turns or self._producer",
        "        if self._producer",
        _by("does_not_overtake"),
    ),
    PlantedBug(
        "who waits to send holds the lock of nobody",
        FILE,
        "/ 1000), lock:\n",
        "/ 1000):\n",
        _by("order_of_the_calls"),
    ),
    PlantedBug(
        "a loop that sends never lets others run",
        FILE,
        "                await asyncio.sleep(0)\n                while True:\n",
        "                while True:\n",
        _by("the_loop_goes_on"),
    ),
    PlantedBug(
        "a full buffer blocks the loop",
        FILE,
        "                    await self._wait_for_room()\n",
        "",
        _by("makes_senders_wait"),
    ),
    PlantedBug(
        "nobody hears of room",
        "client/accumulator.py",
        "            self._condition.notify_all()\n        self.on_room()\n\n    def replaced",
        "            self._condition.notify_all()\n\n    def replaced",
        _by("order_of_the_calls"),
    ),
    PlantedBug(
        "who waits for room does not hear of the end",
        "client/accumulator.py",
        "            self._condition.notify_all()\n        self.on_room()\n\n    def accept",
        "            self._condition.notify_all()\n\n    def accept",
        _by("is_closed_is_refused"),
    ),
    PlantedBug(
        "a record is taken although its sender was cancelled",
        FILE,
        "                while True:\n                    await self._wait_for_room()\n",
        "                while True:\n"
        "                    try:\n"
        "                        await self._wait_for_room()\n"
        "                    except asyncio.CancelledError:\n"
        "                        take()\n"
        "                        raise\n",
        _by("cancelled_is_not_sent"),
    ),
    PlantedBug(
        "a cancelled call of a transaction is left half done",
        FILE,
        "                await asyncio.wait([task])\n",
        "                await task\n",
        _by("cancelled_anywhere or sending_was_cancelled"),
    ),
    PlantedBug(
        "a begin that was cancelled stays open",
        FILE,
        "            if has_begun:\n                await self._abort_after(error)\n",
        "",
        _by("has_not_begun"),
    ),
    PlantedBug(
        "a block that raises leaves its transaction open",
        FILE,
        "        except BaseException as error:\n            await self._abort_after(error)\n",
        "        except BaseException:\n",
        _by("visible_as_a_whole"),
    ),
    PlantedBug(
        "a close that is cancelled leaves its thread",
        FILE,
        "                finally:\n                    self._engine.stop()\n",
        "                finally:\n                    pass\n",
        _by("stops_all_the_same"),
    ),
    PlantedBug(
        "a list that failed in part is a success",
        FILE,
        "            raise PartlySentError(outcomes)\n",
        "            pass\n",
        _by("says_which"),
    ),
    PlantedBug(
        "a flush waits for nothing",
        "client/sender.py",
        "                while self._accumulator.is_unsettled_before(end):\n",
        "                while False:\n",
        _by("flush_waits"),
    ),
    PlantedBug(
        "a flush that was cancelled goes on hurrying",
        "client/sender.py",
        "        except TimeoutError:\n"
        "            self._accumulator.need_settled_before(end, timeout_s)\n"
        "        finally:\n            self._accumulator.calm_down()\n",
        "        except TimeoutError:\n"
        "            self._accumulator.need_settled_before(end, timeout_s)\n",
        _cut("flush and leaves_lingering and begins"),
    ),
    PlantedBug(
        "two loops share one producer",
        FILE,
        '            raise RuntimeError("an AsyncProducer is for',
        '            RuntimeError("an AsyncProducer is for',
        _by("belongs_to_the_loop"),
    ),
    # Cancelled anywhere, in virtual time
    PlantedBug(
        "who was cancelled has sent its record all the same",
        "client/async_producer.py",
        "                        return self._take(record)\n",
        "                        taken = self._take(record)\n"
        "                        await asyncio.sleep(0)\n"
        "                        return taken\n",
        _cut("whose_taking_was_cancelled and begins"),
    ),
    PlantedBug(
        "who waits for room and is cancelled keeps the turn",
        "client/async_producer.py",
        "        finally:\n            turn.waiting -= 1\n",
        "        except Exception:\n            turn.waiting -= 1\n"
        "            raise\n        else:\n            turn.waiting -= 1\n",
        _cut("who_waits_for_room and begins"),
    ),
    PlantedBug(
        "a poll that is cancelled forgets what it took",
        "client/async_consumer.py",
        "                taken: T | None = done.value\n",
        "                taken: T | None = done.value\n                await asyncio.sleep(0)\n",
        _cut("poll_that_is_cancelled and begins"),
    ),
    PlantedBug(
        "a call of a transaction stops half-way when it is cancelled",
        "client/async_producer.py",
        "            except asyncio.CancelledError as error:\n                cancelled = error\n",
        "            except asyncio.CancelledError as error:\n"
        "                task.cancel()\n                cancelled = error\n",
        _cut("whole_or_nothing and turn"),
    ),
    PlantedBug(
        "a transaction that is cancelled stays open",
        "client/async_producer.py",
        "        except BaseException as error:\n            await self._abort_after(error)\n",
        "        except Exception as error:\n            await self._abort_after(error)\n",
        _cut("whole_or_nothing and begins"),
    ),
    PlantedBug(
        "a producer whose close is cancelled goes on",
        "client/async_producer.py",
        "            finally:\n                try:\n                    await self._whole",
        "            except Exception:\n                raise\n            else:\n"
        "                try:\n                    await self._whole",
        _cut("close_that_is_cancelled_stops and begins"),
    ),
    PlantedBug(
        "a consumer whose close is cancelled goes on",
        "client/async_consumer.py",
        "                await self._engine.call_async(self._session.close(timeout))\n"
        "            finally:\n",
        "                await self._engine.call_async(self._session.close(timeout))\n"
        "            except Exception:\n                raise\n            else:\n",
        _cut("close_of_a_consumer and begins"),
    ),
)

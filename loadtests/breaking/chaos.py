"""The nemesis at work: it carries out the plan on a stage, records each fault with its time, and repairs everything.

Everything happens in the caller's thread, because a restarted database ends with the thread that started it.
"""

import heapq
import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from threading import Event

import psutil
import psycopg
import pymysql

from loadtests.breaking.nemesis import Act
from loadtests.diary import Diary, Fault
from loadtests.staging.stage import Stage
from tests.fixtures.processes import Gunicorn

SEEN_WITHIN = 0.8  # seconds to look for a worker that waits for the gateway
TRIES, A_MOMENT = 3, 0.4  # how often an impossible act is tried again, and after how many seconds
HEALED_WITHIN = 60.0  # seconds until all of the stage answers again


class Nemesis:
    """Breaks a stage according to plan. `step` does what is due; call it often."""

    def __init__(self, stage: Stage, acts: Sequence[Act], diary: Diary) -> None:
        self._stage = stage
        self._diary = diary
        self._order = count()
        self._due: list[tuple[float, int, int, Callable[[], None]]] = []  # when, in which order, tries left, what
        self._watched: list[tuple[Callable[[], bool], float, str, str]] = []
        self._stopped: dict[int, tuple[float, str, str]] = {}  # by pid: since when, kind, who
        self._is_down = False
        self._began = time.monotonic()
        for act in acts:
            self._at(act.at, lambda act=act: self._do(act))  # type: ignore[misc]  # mypy has no type for the default

    # -- the run

    @property
    def is_done(self) -> bool:
        """Whether the whole plan has been carried out."""
        return not self._due

    def step(self) -> None:
        """Do what is due, and record what has happened."""
        while self._due and self._due[0][0] <= self._elapsed:
            _, _, tries, do = heapq.heappop(self._due)
            try:
                do()
            except (OSError, psutil.Error, psycopg.Error, AssertionError):
                # What the stage does not have at the moment cannot be broken; a moment later, perhaps it can.
                if tries:
                    self._at(self._elapsed + A_MOMENT, do, tries - 1)
        for watched in list(self._watched):
            has_happened, at, kind, target = watched
            if has_happened():
                self._watched.remove(watched)
                self._note(at, kind, target)

    def heal(self) -> bool:
        """Repair everything; say whether everything answers. A fault that did not happen is not recorded."""
        self._due.clear()
        for pid in list(self._stopped):
            self._wake(pid)
        if self._is_down:
            self._bring_up(time.time(), "")
        if self._stage.proxy:
            self._stage.proxy.pass_through()
        deadline = time.monotonic() + HEALED_WITHIN
        while time.monotonic() < deadline:
            with suppress(OSError):
                self._stage.turn_knob("", 0)
                if self._stage.is_well():
                    self.step()
                    self._watched.clear()
                    return True
            Event().wait(0.2)
        return False

    @property
    def _elapsed(self) -> float:
        return time.monotonic() - self._began

    def _at(self, at: float, do: Callable[[], None], tries: int = TRIES) -> None:
        heapq.heappush(self._due, (at, next(self._order), tries, do))

    def _note(self, at: float, kind: str, target: str, until: float | None = None) -> None:
        self._diary.write(Fault(at, until or time.time(), kind, target))

    # -- what it can do

    def _do(self, act: Act) -> None:
        """Carry an act out."""
        match act.kind:
            case "kill_worker":
                self._kill_worker(act)
            case "pause_worker":
                self._pause(act, self._awake(act.master))
            case "stop_at_seam":
                self._stage.turn_knob("slow", 4)
                self._stop_at_seam(act, self._elapsed + SEEN_WITHIN)
            case "rolling_restart":
                at, master = time.time(), self._master(act.master)
                os.kill(master.pid, signal.SIGHUP)
                self._note(at, act.kind, f"master {act.master}")
            case "kill_backend":
                self._kill_backend(act)
            case "kill_postmaster":
                self._kill_postmaster(act)
            case "cut_after_commit" | "cut_before_commit" | "silence":
                self._trouble_the_wire(act)
            case "gateway_slow" | "gateway_timeout" | "gateway_reset" | "gateway_error":
                at = time.time()
                self._stage.turn_knob(act.kind.removeprefix("gateway_"), act.times)
                self._note(at, act.kind, f"the next {act.times} charges")

    def _kill_worker(self, act: Act) -> None:
        if awake := self._awake(act.master):
            at, pid = time.time(), awake[act.worker % len(awake)]
            self._master(act.master).signal_worker(pid, signal.SIGKILL)
            self._note(at, act.kind, f"master {act.master}, process {pid}")

    def _stop_at_seam(self, act: Act, until: float) -> None:
        """Stop a worker that waits for the gateway's answer; look for one until the given time, then take any."""
        awake = self._awake(act.master)
        waiting = [pid for pid in awake if self._waits_for_gateway(pid)]
        if waiting or self._elapsed >= until:
            self._pause(act, waiting or awake)
        else:
            self._at(self._elapsed + 0.02, lambda: self._stop_at_seam(act, until))

    def _pause(self, act: Act, candidates: Sequence[int]) -> None:
        if len(self._awake(act.master)) < 2 or not candidates:
            return  # somebody must be left to take over
        at, pid = time.time(), candidates[act.worker % len(candidates)]
        self._master(act.master).signal_worker(pid, signal.SIGSTOP)
        self._stopped[pid] = at, act.kind, f"master {act.master}, process {pid}"
        self._at(self._elapsed + act.length, lambda: self._wake(pid))

    def _wake(self, pid: int) -> None:
        if known := self._stopped.pop(pid, None):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
            self._note(*known)

    def _kill_backend(self, act: Act) -> None:
        server = self._stage.server
        if server is None or self._is_down:
            return
        if backends := server.backends(self._stage.database):
            at, pid = time.time(), backends[act.target % len(backends)]
            server.kill_backend(pid)
            self._watched.append((self._takes_connections, at, act.kind, f"process {pid}"))

    def _kill_postmaster(self, act: Act) -> None:
        server = self._stage.server
        if server is None or self._is_down:
            return
        at = time.time()
        server.kill()
        self._is_down = True
        self._at(self._elapsed + act.length, lambda: self._bring_up(at, act.kind))

    def _bring_up(self, at: float, kind: str) -> None:
        assert self._stage.server is not None, "what was killed is there"
        if self._is_down:
            self._stage.server.start()
            self._is_down = False
            self._note(at, kind or "kill_postmaster", "all of the database")

    def _trouble_the_wire(self, act: Act) -> None:
        proxy = self._stage.proxy
        if proxy is None:
            return
        at = time.time()
        match act.kind:
            case "cut_after_commit":
                self._watched.append((proxy.cut_after(b"COMMIT").is_set, at, act.kind, "the next COMMIT"))
            case "cut_before_commit":
                self._watched.append((proxy.cut_before(b"COMMIT").is_set, at, act.kind, "the next COMMIT"))
            case _:
                proxy.blackhole()

                def end() -> None:
                    proxy.pass_through()
                    self._note(at, act.kind, "between shop and database")

                self._at(self._elapsed + act.length, end)

    # -- whom it can do it to

    def _master(self, number: int) -> Gunicorn:
        return self._stage.masters[number % len(self._stage.masters)]

    def _awake(self, master: int) -> list[int]:
        """Give the workers of a master that are not stopped: a stopped one is never killed, it has to wake up."""
        return [pid for pid in self._master(master).workers() if pid not in self._stopped]

    def _waits_for_gateway(self, pid: int) -> bool:
        gateway = self._stage.gateway
        with suppress(psutil.Error):
            return gateway is not None and any(
                link.raddr and link.raddr.port == gateway.port and link.status == psutil.CONN_ESTABLISHED
                for link in psutil.Process(pid).net_connections("tcp4")
            )
        return False

    def _takes_connections(self) -> bool:
        assert self._stage.server is not None, "one of its processes was killed"
        if self._is_down:
            return False
        try:
            self._stage.server.backends(self._stage.database)
        except (psycopg.Error, pymysql.err.Error):
            return False
        return True

"""Tests of ingest jobs: whatever the child process does, the server answers with a sentence."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import msgspec
import pytest

from sawtooth.app.jobs.failure_sentences import crash_sentence
from sawtooth.app.jobs.job_files import JobOutcome, JobRequest
from sawtooth.app.jobs.leftovers import remove_leftovers
from sawtooth.app.jobs.queue import MAX_JOBS, MAX_RUNNING, IngestJob, Jobs
from sawtooth.app.settings import Settings
from sawtooth.ingest.errors import NotFoundError, UsageError
from sawtooth.ingest.schema import DataFolder
from tests.support.paths import ROOT
from tests.support.servers import until

DONE = (
    'import json,pathlib,sys; pathlib.Path(sys.argv[1],"result.json").write_text(json.dumps({"run_ids": ["0123456789abcdef"]}))'
)


def _jobs(tmp_path, code: str) -> Jobs:
    settings = Settings(DataFolder(tmp_path / "data").create())
    return Jobs(settings, command=lambda folder: [sys.executable, "-c", code, str(folder)])


def _uploaded(jobs: Jobs, content: bytes = b"{}") -> list[tuple[Path, str]]:
    path = jobs.settings.data.uploads / os.urandom(16).hex()
    path.write_bytes(content)
    return [(path, "trace.json")]


def _ended(job: IngestJob) -> IngestJob:
    for thread in threading.enumerate():
        if thread.name == f"job-{job.id}":
            thread.join(30)
    return job


def test_a_job_ends_with_its_run_and_leaves_no_files(tmp_path) -> None:
    jobs = _jobs(tmp_path, DONE)
    job = _ended(jobs.start(_uploaded(jobs)))
    assert job.stage == "done"
    assert job.outcome.run_ids == ["0123456789abcdef"]
    assert list(jobs.settings.data.uploads.iterdir()) == []


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("import os; os.kill(os.getpid(), 9)", "lack of memory"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGXCPU)", "processor time"),
        ("import os; os.kill(os.getpid(), 11)", "crashed on this file"),
        ("raise SystemExit(7)", "status 7"),
        ("pass", "without a result"),
        ("import pathlib,sys; pathlib.Path(sys.argv[1], 'result.json').write_text('{broken')", "without a result"),
    ],
)
def test_the_end_of_a_killed_child_is_explained(tmp_path, code, says) -> None:
    jobs = _jobs(tmp_path, code)
    job = _ended(jobs.start(_uploaded(jobs)))
    assert job.stage == "failed"
    assert says in job.outcome.sentence
    assert str(tmp_path) not in job.outcome.sentence
    assert list(jobs.settings.data.uploads.iterdir()) == []


def test_a_child_killed_during_analysis_has_stored_its_runs(tmp_path) -> None:
    progress = '{"stage": "deriving", "runs": ["0123456789abcdef"]}'
    for end in ("raise SystemExit(1)", "import os; os.kill(os.getpid(), 11)"):
        jobs = _jobs(
            tmp_path / end[:5],
            f"import pathlib, sys; pathlib.Path(sys.argv[1], 'progress.json').write_text('{progress}'); {end}",
        )
        job = _ended(jobs.start(_uploaded(jobs)))
        assert (job.stage, job.outcome.run_ids) == ("failed", ["0123456789abcdef"])
        assert "its run is listed" in job.outcome.sentence and "Nothing of" not in job.outcome.sentence


def test_a_job_is_done_with_its_answer_even_if_its_child_dies_later(tmp_path) -> None:
    answered = tmp_path / "answered"
    os.mkfifo(answered)
    jobs = _jobs(tmp_path, f"{DONE}; open({str(answered)!r}, 'w').close(); import os, threading; threading.Event().wait()")
    job = jobs.start(_uploaded(jobs))
    answered.open().close()
    seen = jobs.get(job.id)
    assert (seen.stage, seen.outcome.run_ids) == ("done", ["0123456789abcdef"])
    jobs.close()  # The server ends, and its children with it.
    assert _ended(job).stage == "done" and job.outcome.run_ids == ["0123456789abcdef"]
    assert list(jobs.settings.data.uploads.iterdir()) == []


def test_exclusive_jobs_run_one_after_the_other(tmp_path) -> None:
    go, times = tmp_path / "go", tmp_path / "times"
    times.mkdir()
    code = (
        "import os, pathlib, time\nbegan = time.monotonic_ns()\n"
        f"while not pathlib.Path({str(go)!r}).exists(): time.sleep(0.01)\n"
        "time.sleep(0.1)\n"
        f"pathlib.Path({str(times)!r}, str(os.getpid())).write_text(f'{{began}} {{time.monotonic_ns()}}')\n"
    )
    jobs = _jobs(tmp_path, code + DONE)
    try:
        running = [jobs.start(_uploaded(jobs)) for _ in range(MAX_RUNNING)]
        until(lambda: all(job.stage == "reading" for job in running))
        alone = [jobs.start(_uploaded(jobs), alone=True) for _ in range(3)]
        go.touch()
        until(lambda: all(job.stage == "done" for job in alone))
    finally:
        jobs.close()
    *first, second, third, fourth = sorted(tuple(map(int, path.read_text().split())) for path in times.iterdir())
    assert len(first) == MAX_RUNNING
    assert max(end for _, end in first) < second[0] and second[1] < third[0] and third[1] < fourth[0]


def test_a_dropped_file_does_not_wait_for_repeated_analyses(tmp_path) -> None:
    waits = "import json,pathlib,sys,time; time.sleep(60 * bool(json.loads(pathlib.Path(sys.argv[1],'job.json').read_text())['analyse']));"
    jobs = _jobs(tmp_path, waits + DONE)
    for number in range(MAX_RUNNING + 1):
        jobs.analyse(f"{number:016x}")
    assert _ended(jobs.start(_uploaded(jobs))).stage == "done"
    jobs.close()


def test_an_error_s_sentence_reaches_the_user(tmp_path) -> None:
    code = 'import json,pathlib,sys; pathlib.Path(sys.argv[1],"result.json").write_text(json.dumps({"code": "E-EMPTY", "sentence": "The file is empty."})); sys.exit(1)'
    jobs = _jobs(tmp_path, code)
    job = _ended(jobs.start(_uploaded(jobs)))
    assert (job.stage, job.outcome) == ("failed", JobOutcome(code="E-EMPTY", sentence="The file is empty."))


def test_a_running_job_shows_its_progress_and_can_be_cancelled(tmp_path) -> None:
    ready = tmp_path / "ready"
    os.mkfifo(ready)
    code = (
        "import json,pathlib,sys,threading\n"
        'pathlib.Path(sys.argv[1],"progress.json").write_text(json.dumps({"stage": "reading", "share": 0.25, "events": 1200}))\n'
        f"open({str(ready)!r}, 'w').close()\n"
        "threading.Event().wait()"
    )
    jobs = _jobs(tmp_path, code)
    job = jobs.start(_uploaded(jobs))
    ready.open().close()  # Blocks until the child has written its progress.
    seen = jobs.get(job.id)
    assert (seen.stage, seen.progress.share, seen.progress.events) == ("reading", 0.25, 1200)
    jobs.cancel(job.id)
    assert _ended(job).stage == "cancelled"
    assert list(jobs.settings.data.uploads.iterdir()) == []
    assert jobs.all() == [job]
    jobs.dismiss(job.id)
    with pytest.raises(NotFoundError):
        jobs.get(job.id)


def test_the_child_gets_only_needed_environment_variables(tmp_path, monkeypatch) -> None:
    for name in ("SAWTOOTH_TOKEN", "SAWTOOTH_PUSH_TOKEN", "AWS_SECRET_ACCESS_KEY", "TZ"):
        monkeypatch.setenv(name, "a-value-of-this-test")
    code = "import json,os,pathlib,sys; pathlib.Path(sys.argv[1],'result.json').write_text(json.dumps({'notices': sorted(n for n, v in os.environ.items() if v == 'a-value-of-this-test')}))"
    jobs = _jobs(tmp_path, code)
    assert _ended(jobs.start(_uploaded(jobs))).outcome.notices == ["TZ"]


def test_the_child_dies_with_its_server(tmp_path) -> None:
    import subprocess

    code = "import sawtooth.app.jobs.child as j, threading; j._end_with_server(); print('up', flush=True); threading.Event().wait()"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)
    with child:
        assert child.stdout.readline() == b"up\n"
        child.stdin.close()
        assert child.wait(30) == 3


def test_jobs_need_files_and_an_open_queue(tmp_path) -> None:
    jobs = _jobs(tmp_path, DONE)
    with pytest.raises(UsageError):
        jobs.start([])
    jobs.close()
    with pytest.raises(UsageError, match="is stopping"):
        jobs.start(_uploaded(jobs))


def test_a_child_that_the_system_cannot_start_is_explained(tmp_path) -> None:
    settings = Settings(DataFolder(tmp_path / "data").create())
    jobs = Jobs(settings, command=lambda folder: [str(tmp_path / "no-such-program")])
    for job in (jobs.start(_uploaded(jobs)), jobs.analyse("0" * 16)):
        _ended(job)
        assert (job.stage, job.active, job.outcome.code) == ("failed", False, "E-CHILD")
        assert job.finished is not None and "could not start the reader (No such file" in job.outcome.sentence
        assert str(tmp_path) not in job.outcome.sentence
    assert list(settings.data.uploads.iterdir()) == []


def test_simultaneous_requests_share_one_analysis(tmp_path, monkeypatch) -> None:
    jobs = _jobs(tmp_path, "import threading; threading.Event().wait()")
    new_folder, barrier, found = jobs._new_folder, threading.Barrier(4), []

    def slow() -> Path:
        time.sleep(0.1)  # Long enough for the other threads to check before this job exists.
        return new_folder()

    def ask() -> None:
        barrier.wait()
        found.append(jobs.analyse("0" * 16).id)

    monkeypatch.setattr(jobs, "_new_folder", slow)
    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    jobs.close()
    assert len(found) == 4 and len(set(found)) == 1


def test_the_number_of_waiting_jobs_is_limited(tmp_path) -> None:
    jobs = _jobs(tmp_path, "import threading; threading.Event().wait()")
    for number in range(MAX_JOBS):
        jobs.analyse(f"{number:016x}")
    with pytest.raises(UsageError, match="50 jobs are already running or waiting"):
        jobs.analyse("f" * 16)
    jobs.close()


def test_sweeping_removes_only_files_of_dead_servers(tmp_path) -> None:
    uploads = DataFolder(tmp_path).create().uploads
    dead, alive, fresh = uploads / "job-dead", uploads / "job-alive", uploads / "job-half"
    for folder, pid in ((dead, 2**22 + 5), (alive, os.getppid())):
        folder.mkdir()
        (folder / "job.json").write_bytes(msgspec.json.encode(JobRequest("x", [], server_pid=pid)))
    fresh.mkdir()
    assert remove_leftovers(uploads, now=fresh.stat().st_mtime + 1) == 1
    assert sorted(p.name for p in uploads.iterdir()) == ["job-alive", "job-half"]


@pytest.mark.parametrize("code", [None, -signal.SIGKILL, -signal.SIGXCPU, -signal.SIGSEGV, 1, 0])
def test_every_end_of_a_job_has_a_sentence_with_advice(code) -> None:
    sentence = crash_sentence(code)
    assert sentence.endswith(".")
    assert "Traceback" not in sentence


def test_the_second_request_for_one_upload_is_refused(tmp_path) -> None:
    jobs = _jobs(tmp_path, "pass")
    (first, _), *_ = shared = _uploaded(jobs)
    other = first.with_name("f" * 32)
    other.write_bytes(b"of the second order alone")
    jobs.start(shared)
    with pytest.raises(NotFoundError, match="Another job has already taken"):
        jobs.start([(other, "other"), *shared])
    assert other.read_bytes() == b"of the second order alone"
    assert len(list(jobs.settings.data.uploads.glob("job-*"))) <= 1

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from rlforge_cli import checkpoint
from rlforge_cli.errors import RunFailed, UserError

FOLDER = Path("checkpoints")


def save(
    step: int, *, keep: int = -1, write_model=lambda folder: (folder / "model.bin").write_bytes(b"x" * 4096)
) -> Path:
    return checkpoint.save(
        FOLDER, step, write_model=write_model, tensors={"w": torch.arange(3.0) + step}, state={"step": step}, keep=keep
    )


def names() -> list[str]:
    return sorted(path.name for path in FOLDER.iterdir())


def test_what_is_saved_is_loaded():
    tensors, state = checkpoint.load(save(7))
    assert torch.equal(tensors["w"], torch.tensor([7.0, 8.0, 9.0]))
    assert state == {"step": 7}


def test_steps_are_compared_as_numbers():
    for step in (9000, 9900, 10000, 1_000_000):
        save(step)
    assert [p.name for p in checkpoint.all_checkpoints(FOLDER)] == [
        "step-009000",
        "step-009900",
        "step-010000",
        "step-1000000",
    ]
    assert checkpoint.last_checkpoint(FOLDER).name == "step-1000000"
    checkpoint.prune(FOLDER, keep=-1)
    assert len(names()) == 4
    checkpoint.prune(FOLDER, keep=2)
    assert names() == ["step-010000", "step-1000000"]
    for keep in (0, -2):
        with pytest.raises(UserError, match="-1 to keep all"):
            checkpoint.prune(FOLDER, keep=keep)


def test_foreign_names_sort_as_numbers_too():
    for name in ("checkpoint-9000", "checkpoint-9900", "checkpoint-10000"):
        (FOLDER / name).mkdir(parents=True)
        (FOLDER / name / checkpoint.STATE).write_text("{}")
    assert checkpoint.last_checkpoint(FOLDER).name == "checkpoint-10000"
    checkpoint.prune(FOLDER, keep=2)
    assert names() == ["checkpoint-10000", "checkpoint-9900"]


@pytest.mark.parametrize("moment", ["before the first file", "in the middle of a file", "before publishing"])
def test_a_kill_during_a_save_leaves_the_previous_checkpoint(moment):
    save(1)
    pid = os.fork()
    if pid == 0:  # a process that dies without any clean-up

        def model(folder: Path) -> None:
            if moment == "before the first file":
                os._exit(9)
            with open(folder / "model.bin", "wb") as file:
                file.write(b"x" * 100)
                file.flush()
                if moment == "in the middle of a file":
                    os._exit(9)

        checkpoint.replace_folder = lambda new, target: os._exit(9)  # type: ignore[assignment]
        save(2, write_model=model)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9
    assert checkpoint.last_checkpoint(FOLDER).name == "step-000001"
    assert len(checkpoint.incomplete_checkpoints(FOLDER)) == 1
    with checkpoint.clean_start(FOLDER) as left:
        assert [path.name[:5] for path in left] == [".tmp-"]
    assert names() == ["step-000001"]
    save(2)
    assert checkpoint.last_checkpoint(FOLDER).name == "step-000002"


def test_a_folder_without_the_completion_mark_is_never_chosen():
    save(1)
    (FOLDER / "step-000005").mkdir()
    (FOLDER / "step-000005" / "model.bin").write_bytes(b"half")
    assert checkpoint.last_checkpoint(FOLDER).name == "step-000001"
    assert [path.name for path in checkpoint.incomplete_checkpoints(FOLDER)] == ["step-000005"]


def test_a_full_disk_keeps_the_only_checkpoint_and_says_what_is_missing():
    save(1, keep=1)

    def full(folder: Path) -> None:
        (folder / "model.bin").write_bytes(b"x" * (3 << 20))
        raise OSError(28, "No space left on device")

    with pytest.raises(RunFailed, match=r"step-000002.*no space left.*more than 3\.0 MiB needed.*free"):
        save(2, keep=1, write_model=full)
    assert names() == ["step-000001"]
    assert checkpoint.load(FOLDER / "step-000001")[1] == {"step": 1}


def torch_error() -> BaseException:
    return RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 1160960 vs 1160848")


def safetensors_error() -> BaseException:
    from safetensors import SafetensorError

    return SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")


@pytest.mark.parametrize("make", [torch_error, safetensors_error])
def test_the_writers_own_words_for_a_full_disk_are_understood(make):
    save(1)

    def full(folder: Path) -> None:
        raise make()

    with pytest.raises(RunFailed, match="no space left"):
        save(2, write_model=full)
    assert names() == ["step-000001"]


def test_an_error_that_is_not_the_disks_is_not_called_so():
    def broken(folder: Path) -> None:
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    with pytest.raises(RuntimeError, match="mat1"):
        save(1, write_model=broken)


def test_the_old_one_goes_only_after_the_new_one_is_there(monkeypatch):
    save(1, keep=1)
    seen = []
    prune = checkpoint.prune
    monkeypatch.setattr(checkpoint, "prune", lambda folder, *, keep: (seen.append(names()), prune(folder, keep=keep)))
    save(2, keep=1)
    assert seen == [["step-000001", "step-000002"]]
    assert names() == ["step-000002"]


def test_a_folder_is_replaced_whole_and_a_cut_replacement_is_undone():
    target = Path("best")
    checkpoint.publish(target, lambda folder: (folder / "a").write_text("old"))
    checkpoint.publish(target, lambda folder: (folder / "b").write_text("new"))
    assert [path.name for path in target.iterdir()] == ["b"]
    os.rename(target, ".old-best")  # a crash between the two renames
    checkpoint.restore_set_aside(target)
    assert (target / "b").read_text() == "new"

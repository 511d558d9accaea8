"""What tasks have found, one small file each, so that an interrupted evaluation goes on where it stopped."""

from pathlib import Path

import msgspec

from traces.errors import UserError
from traces.write import replacing
from validation.experiments.task import Outcome


class Store:
    """A folder of outcomes, `<key>.json`. A file is written whole or not at all; one that is damaged counts as none."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, key: str) -> Outcome | None:
        try:
            return msgspec.json.decode(self._path(key).read_bytes(), type=dict)
        except (OSError, msgspec.DecodeError):
            return None

    def put(self, key: str, outcome: Outcome) -> None:
        """Raises UserError where the folder cannot be written."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise UserError(f"{self.folder}: cannot make this folder: {problem.strerror}") from None
        with replacing(self._path(key)) as temporary:
            temporary.write_bytes(msgspec.json.encode(outcome))

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.json"

"""The summary of a GitHub workflow's job, and Sawtooth's comment on the pull request.

Nothing is sent unless a command asks for it. A fork's token may not write comments, so a fork has only the summary.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from sawtooth.ingest.errors import SawtoothError

MAX_COMMENT_CHARACTERS = 65_536  # GitHub refuses a longer comment.
MAX_SUMMARY_BYTES = 1 << 20  # GitHub drops a longer summary of a workflow step.
TRUNCATION_NOTE = "\n\n… the rest is in the job's files.\n"
MAX_PAGES = 20  # At most this many pages of 100 comments are read.
TIMEOUT_S = 30  # A request to GitHub ends after this time.
REFUSED = (401, 403, 404)  # GitHub's answers to a token that may not write.


class _WithoutToken(HTTPRedirectHandler):
    """Follow a redirect without the token.

    A redirect leads to another host, such as the store of artifacts.
    """

    def redirect_request(self, *arguments: Any) -> Request | None:
        """Return the next request."""
        following = super().redirect_request(*arguments)
        if following is not None:
            following.remove_header("Authorization")
        return following


@dataclass(frozen=True)
class Job:
    """A job of a workflow: the API, the token, the repository, and the number of its pull request."""

    api: str
    token: str
    repository: str
    pull_request: int | None

    @classmethod
    def of_environment(cls) -> Job | None:
        """Return the job that the environment describes; None outside a workflow or without a token."""
        token, repository = os.environ.get("GITHUB_TOKEN", ""), os.environ.get("GITHUB_REPOSITORY", "")
        if not token or not repository:
            return None
        api = os.environ.get("GITHUB_API_URL", "https://api.github.com").rstrip("/")
        return cls(api, token, repository, _pull_request(os.environ.get("GITHUB_EVENT_PATH", "")))

    def comment(self, marker: str, text: str) -> bool:
        """Write the comment with ``marker`` on the pull request, or replace it.

        Returns False if there is no pull request, or if the token may not write. Raises SawtoothError if GitHub cannot be reached.
        """
        if self.pull_request is None:
            return False
        body = {"body": cut(text, MAX_COMMENT_CHARACTERS)}
        comments = f"/repos/{self.repository}/issues/{self.pull_request}/comments"
        try:
            own_comment = next((page for page in self._pages(comments) if marker in (page.get("body") or "")), None)
            if own_comment is None:
                self._ask("POST", comments, body)
            else:
                self._ask("PATCH", f"/repos/{self.repository}/issues/comments/{own_comment['id']}", body)
        except HTTPError as error:
            if error.code in REFUSED:
                return False
            raise SawtoothError(
                f"GitHub refused the comment ({error.code} {error.reason}). Check that the workflow has the permission pull-requests: write."
            ) from None
        except (URLError, TimeoutError, ValueError) as error:
            raise SawtoothError(f"GitHub cannot be reached ({error}). Run the job again.") from None
        return True

    def newest_artifact(self, name: str, to: Path) -> Path | None:
        """Write the newest artifact ``name`` (a zip file) to ``to``; return None if there is none.

        Raises SawtoothError if GitHub cannot be reached.
        """
        try:
            listed = self._ask("GET", f"/repos/{self.repository}/actions/artifacts?per_page=100&name={name}")
            valid_artifacts = [
                artifact
                for artifact in listed.get("artifacts", [])
                if artifact.get("name") == name and not artifact.get("expired")
            ]
            if not valid_artifacts:
                return None
            newest = max(valid_artifacts, key=lambda artifact: str(artifact.get("created_at", "")))
            with (
                self._open("GET", f"/repos/{self.repository}/actions/artifacts/{newest['id']}/zip") as answer,
                to.open("wb") as file,
            ):
                shutil.copyfileobj(answer, file)
            return to
        except (HTTPError, URLError, TimeoutError, ValueError) as error:
            raise SawtoothError(
                f"The artifact {name} cannot be read from GitHub ({error}). Check that the workflow has the permission actions: read."
            ) from None

    def _pages(self, path: str) -> Any:
        for page in range(1, MAX_PAGES + 1):
            listed = self._ask("GET", f"{path}?per_page=100&page={page}")
            yield from listed
            if len(listed) < 100:
                return

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        with self._open(method, path, body) as answer:
            return json.load(answer)

    def _open(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        headers = {
            "Authorization": f"Bearer {self.token}",
            "Accept": "application/vnd.github+json",
            "X-GitHub-Api-Version": "2022-11-28",
            "User-Agent": "sawtooth",
        }
        data = json.dumps(body).encode() if body is not None else None
        request = Request(f"{self.api}{path}", data, headers, method=method)
        return build_opener(_WithoutToken).open(request, timeout=TIMEOUT_S)


def add_to_summary(text: str) -> bool:
    """Append Markdown to the job's summary; return False outside a workflow."""
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if not path:
        return False
    file = Path(path)
    used_bytes = file.stat().st_size if file.exists() else 0
    if used_bytes + len(text.encode()) > MAX_SUMMARY_BYTES:
        text = cut(
            text, max(MAX_SUMMARY_BYTES - used_bytes - len(TRUNCATION_NOTE), 0) // 4
        )  # A character has at most four bytes.
    with file.open("a", encoding="utf-8") as summary:
        summary.write(text)
    return True


def add_output(**values: str) -> None:
    """Set outputs of the workflow's step; does nothing outside a workflow."""
    path = os.environ.get("GITHUB_OUTPUT")
    if path:
        with Path(path).open("a", encoding="utf-8") as outputs:
            outputs.writelines(f"{name.replace('_', '-')}={' '.join(value.split())}\n" for name, value in values.items())


def cut(text: str, characters: int) -> str:
    """Return ``text`` with at most this many characters.

    A cut text ends with TRUNCATION_NOTE, and its open blocks are closed.
    """
    if len(text) <= characters:
        return text
    shortened = text[: max(characters - len(TRUNCATION_NOTE) - 20, 0)].rpartition("\n")[0]
    fence = "\n```" if shortened.count("```") % 2 else ""
    open_details = "\n</details>" if shortened.count("<details>") > shortened.count("</details>") else ""
    return f"{shortened}{fence}{open_details}{TRUNCATION_NOTE}"[:characters]


def _pull_request(event: str) -> int | None:
    try:
        number = json.loads(Path(event).read_text(encoding="utf-8"))["pull_request"]["number"]
        return int(number)
    except (OSError, ValueError, KeyError, TypeError):
        return None

#!/usr/bin/env bash
# Makes .venv with highrank (editable) and pinned dependencies: ./setup.sh [EXTRAS]   e.g. ./setup.sh dev
# Does nothing when a set-up from the same files, with the same Python and at least these extras, is already there.
set -euo pipefail
cd "$(dirname "$0")"
extras=${1:-}
venv=.venv

python=${PYTHON:-}
if [ -z "$python" ]; then
  for candidate in python3.12 python3.11 python3 python; do
    if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null; then
      # A CPU build of torch offered to pip (PIP_FIND_LINKS and the like) may exist for one Python only: prefer that one.
      python=${python:-$candidate}
      if [ -n "${PIP_FIND_LINKS:-}" ] && tag=$("$candidate" -c 'import sys; print("cp%d%d" % sys.version_info[:2])') \
        && compgen -G "$PIP_FIND_LINKS/torch-*$tag*.whl" >/dev/null; then python=$candidate; break; fi
    fi
  done
fi
if [ -z "$python" ]; then
  echo "setup: highrank needs Python 3.11 or 3.12 and found neither; install one or name it with PYTHON=/path/to/python." >&2
  exit 2
fi

# By base_prefix, which an activated .venv shares with the Python that it was made from.
identity='import sys; print(sys.version_info[:3], sys.base_prefix)'
stamp="$("$python" -c "$identity") $(cat pyproject.toml constraints.txt setup.sh | cksum)"
for done in "$venv"/.highrank-setup*; do
  case "$done" in
    "$venv/.highrank-setup-$extras" | "$venv/.highrank-setup-dev") [ -f "$done" ] && [ "$(cat "$done")" = "$stamp" ] && exit 0 ;;
  esac
done

echo "setup: installing into $venv with $("$python" --version) (a few minutes the first time) ..."
if [ "$("$venv/bin/python" -c "$identity" 2>/dev/null || true)" != "$("$python" -c "$identity")" ]; then
  "$python" -m venv --clear "$venv"
fi
rm -f "$venv"/.highrank-setup*
target=".${extras:+[$extras]}"

# uv installs the same files several times faster; pip is the fallback. uv does not read pip's settings, so hand over
# where pip looks for local wheels: that is how a CPU build of torch is found where one is offered.
if "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "uv>=0.9,<1" 2>/dev/null; then
  links=${PIP_FIND_LINKS:-$("$venv/bin/python" -m pip config get global.find-links 2>/dev/null || true)}
  if ! UV_FIND_LINKS="${UV_FIND_LINKS:-$links}" VIRTUAL_ENV="$venv" "$venv/bin/uv" pip install --quiet -c constraints.txt -e "$target"; then
    "$venv/bin/python" -m pip install --quiet -c constraints.txt -e "$target"
  fi
else
  "$venv/bin/python" -m pip install --quiet -c constraints.txt -e "$target"
fi
printf '%s' "$stamp" > "$venv/.highrank-setup-$extras"
echo "setup: done; 'source $venv/bin/activate' puts highrank on your PATH."

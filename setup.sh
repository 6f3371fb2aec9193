#!/usr/bin/env bash
# Usage: ./setup.sh [EXTRAS], for example ./setup.sh dev
# Create .venv with highrank (editable) and pinned dependencies. Do nothing if .venv was made from the same files and the
# same Python and has at least these extras.
set -euo pipefail
cd "$(dirname "$0")"
extras=${1:-}
venv=.venv

python=${PYTHON:-}
if [ -z "$python" ]; then
  for candidate in python3.12 python3.11 python3.13 python3.14 python3 python; do
    if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' 2>/dev/null; then
      # PIP_FIND_LINKS may offer a CPU build of torch for one Python version only: prefer that version.
      python=${python:-$candidate}
      if [ -n "${PIP_FIND_LINKS:-}" ] && tag=$("$candidate" -c 'import sys; print("cp%d%d" % sys.version_info[:2])') \
        && compgen -G "$PIP_FIND_LINKS/torch-*$tag*.whl" >/dev/null; then python=$candidate; break; fi
    fi
  done
fi
if [ -z "$python" ]; then
  echo "setup: highrank needs Python 3.11 to 3.14, and none was found. Install one, or set PYTHON=/path/to/python." >&2
  exit 2
fi

# Compare base_prefix, which an activated .venv shares with the Python that created it.
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

# uv is several times faster than pip, the fallback. uv ignores pip's settings, so pass on where pip looks for local
# wheels, which may include a CPU build of torch.
if "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "uv>=0.9,<1" 2>/dev/null; then
  links=${PIP_FIND_LINKS:-$("$venv/bin/python" -m pip config get global.find-links 2>/dev/null || true)}
  if ! UV_FIND_LINKS="${UV_FIND_LINKS:-$links}" VIRTUAL_ENV="$venv" "$venv/bin/uv" pip install --quiet -c constraints.txt -e "$target"; then
    "$venv/bin/python" -m pip install --quiet -c constraints.txt -e "$target"
  fi
else
  "$venv/bin/python" -m pip install --quiet -c constraints.txt -e "$target"
fi
printf '%s' "$stamp" > "$venv/.highrank-setup-$extras"
echo "setup: done. 'source $venv/bin/activate' puts highrank on your PATH."

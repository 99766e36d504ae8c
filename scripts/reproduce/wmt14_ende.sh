#!/usr/bin/env bash
# English to German as in Table 2: base, 27.3 BLEU after 100,000 steps, the last
# 5 checkpoints averaged; or big, 28.4 after 300,000, the last 20 (section 6.1).
#
#     scripts/reproduce/wmt14_ende.sh base|big FOLDER [flags of the trainer]
set -euo pipefail
case ${1-} in
  base | big) ;;
  *) echo "Say which model: ${0##*/} base|big FOLDER" >&2 && exit 1 ;;
esac
exec "$(dirname "$0")/wmt14.sh" wmt14_ende "$@"

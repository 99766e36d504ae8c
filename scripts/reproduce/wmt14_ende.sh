#!/usr/bin/env bash
# English to German as in Table 2. The paper has 27.3 BLEU for base after 100,000
# steps, an average of the last 5 checkpoints, and 28.4 for big after 300,000
# steps, an average of the last 20 (section 6.1).
#
#     scripts/reproduce/wmt14_ende.sh base|big FOLDER [flags of the trainer]
set -euo pipefail
case ${1-} in
  base | big) ;;
  *) echo "Usage: ${0##*/} base|big FOLDER" >&2 && exit 1 ;;
esac
exec "$(dirname "$0")/wmt14.sh" wmt14_ende "$@"

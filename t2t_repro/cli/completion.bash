# Completes commands, flags, and names of problems and hparams sets.
# In ~/.bashrc: eval "$(t2t completion)"
_t2t() {
  local word=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]} flag words
  # bash splits a line at "=".
  if [[ $word == "=" ]]; then
    flag=${COMP_WORDS[COMP_CWORD - 1]} word=
  elif [[ ${COMP_WORDS[COMP_CWORD - 1]} == "=" ]]; then
    flag=${COMP_WORDS[COMP_CWORD - 2]}
  fi
  if [[ $COMP_CWORD == 1 ]]; then
    words="@WORDS@"
  elif [[ $flag == --problem || $flag == --hparams_set ]]; then
    flag=${flag#--} # of the section "problems:" or "hparams sets:"
    words=$(t2t show --registry_help |
      sed -n "/^${flag/_/ }s:/,/^[a-z]/s/^  \([^ ][^ ]*\).*/\1/p")
  elif [[ $word == --* ]]; then
    words=$(t2t help "$command" | sed -n 's/^  --\(\[no\]\)\{0,1\}\([a-z_0-9]*=\{0,1\}\).*/--\2/p')
  fi
  if [[ -n $words ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
  else
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
  fi
  if [[ ${COMPREPLY[0]} == *= ]]; then compopt -o nospace; fi
}
complete -o filenames -F _t2t t2t

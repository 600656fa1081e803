#compdef arrayd-cli
# zsh completion for arrayd-cli: eval "$(arrayd-cli completion zsh)" after compinit, or this text in a
# file of $fpath by the name _arrayd-cli.
_arrayd-cli() {
    local -a before found described open
    local line word about files=0 npy=0
    (( CURRENT > 2 )) && before=("${(@Q)words[2,CURRENT-1]}")
    found=("${(@f)$("${words[1]}" __complete "${before[@]}" "${(Q)PREFIX}" 2>/dev/null)}")
    for line in $found; do
        [[ -n $line ]] || continue
        if [[ $line == :files* ]]; then
            files=1
            [[ $line == *npy ]] && npy=1
            continue
        fi
        word=${line%%$'\t'*}
        about=
        [[ $line == *$'\t'* ]] && about=${line#*$'\t'}
        if [[ $word == *[=\(/:] ]]; then
            open+=("$word")
        else
            described+=("${word//:/\\:}${about:+:$about}")
        fi
    done
    (( $#described )) && _describe -t values value described
    (( $#open )) && compadd -Q -S '' -- $open
    if (( files )); then
        [[ $PREFIX == *=* ]] && compset -P '*='
        if (( npy )); then
            _files -g '*.npy' || _files
        else
            _files
        fi
    fi
}
if [[ ${zsh_eval_context[-1]:-} == loadautofunc ]]; then
    _arrayd-cli "$@"
else
    compdef _arrayd-cli arrayd-cli
fi

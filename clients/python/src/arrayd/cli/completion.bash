# bash completion for arrayd-cli: eval "$(arrayd-cli completion bash)", or this text in a file of
# ~/.local/share/bash-completion/completions/ by the name arrayd-cli.
_arrayd_cli() {
    # bash has cut words at = and : where COMP_WORDBREAKS has them; here they are put together again.
    local -a words=() found=()
    local i piece joined= line current trim files=
    for ((i = 1; i <= COMP_CWORD; i++)); do
        piece=${COMP_WORDS[i]}
        if ((${#words[@]})) && { [[ $piece == [=:]* ]] || [[ $joined ]]; }; then
            words[-1]+=$piece
        else
            words+=("$piece")
        fi
        joined=
        [[ $piece == *[=:] ]] && joined=1
    done
    # After a blank, a word of its own begins, whatever the one before ends with.
    if [[ -z ${COMP_WORDS[COMP_CWORD]} && ${COMP_LINE:COMP_POINT-1:1} == [[:blank:]] && -n ${words[-1]} ]]; then
        words+=("")
    fi
    # An open quote is readline's business.
    current=${words[-1]#[\'\"]}
    words[-1]=$current
    # What bash takes as the word to be replaced begins after the last of these characters.
    trim=
    if [[ $current == *[=:]* && $COMP_WORDBREAKS == *[=:]* ]]; then
        trim=${current%"${current##*[=:]}"}
    fi
    COMPREPLY=()
    mapfile -t found < <("$1" __complete "${words[@]}" 2>/dev/null)
    for line in "${found[@]}"; do
        if [[ $line == :files* ]]; then
            files=${line#:files}
            compopt -o filenames 2>/dev/null
            if [[ $files == " npy" ]]; then
                mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -X '!*.npy' -- "${current#"$trim"}"; compgen -d -- "${current#"$trim"}")
            fi
            if [[ $files != " npy" || ${#COMPREPLY[@]} == 0 ]]; then
                mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "${current#"$trim"}")
            fi
        else
            line=${line%%$'\t'*}
            [[ $line == *[=\(/:] ]] && compopt -o nospace 2>/dev/null
            COMPREPLY+=("${line#"$trim"}")
        fi
    done
}
complete -F _arrayd_cli arrayd-cli

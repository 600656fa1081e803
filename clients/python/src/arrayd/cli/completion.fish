# fish completion for arrayd-cli: arrayd-cli completion fish > ~/.config/fish/completions/arrayd-cli.fish
function __arrayd_cli_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l program $words[1]
    set -e words[1]
    for line in (command $program __complete $words "$current" 2>/dev/null)
        switch $line
            case ':files npy'
                # What stands before the path in the same word goes before each candidate.
                set -l before (string match -r '^[^=/]*=' -- $current)
                set -l begun (string replace -r '^[^=/]*=' '' -- $current)
                set -l found $begun*.npy $begun*/
                set -q found[1]; or set found (__fish_complete_path $begun)
                for file in $found
                    echo "$before$file"
                end
            case ':files'
                __fish_complete_path $current
            case '*'
                echo $line
        end
    end
end
complete -c arrayd-cli -f -a '(__arrayd_cli_complete)'

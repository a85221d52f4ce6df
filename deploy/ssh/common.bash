# What fleet-start and fleet-stop share.
# shellcheck shell=bash disable=SC2034  # used by the scripts that source this

hosts='' dir=.local/share/kagiri-agent
# Never ask for a password: a host that wants one is named instead.
ssh=(ssh -o BatchMode=yes -o ConnectTimeout=10)

wrong() {
  echo "${0##*/}: $1" >&2
  exit 2
}

# The value after an option.
value() {
  [ $# -ge 2 ] || wrong "$1 needs a value"
  printf '%s' "$2"
}

# One option or argument that both scripts have; $taken says how many words it was.
common_option() {
  case $1 in
    -h | --help) usage; exit 0 ;;
    --dir) dir=$(value "$@"); safe "$dir"; taken=2 ;;
    -F) ssh+=(-F "$(value "$@")"); taken=2 ;;
    -*) wrong "there is no option $1; see --help" ;;
    *)
      [ -z "$hosts" ] || wrong "one file of hosts, not both $hosts and $1"
      hosts=$1 taken=1
      ;;
  esac
}

# Words that go through a shell on a host: nothing in them may mean anything to it.
safe() {
  [[ $1 =~ ^[][A-Za-z0-9._/:@%+-]+$ && $1 != -* ]] || wrong "'$1' holds characters that a shell would take for its own"
}

# The file of hosts: fills names and destinations.
read_hosts() {
  local name destination rest
  [ -n "$hosts" ] || wrong "the file of hosts is missing; see --help"
  [ -r "$hosts" ] || wrong "$hosts: cannot be read"
  names=() destinations=()
  while read -r name destination rest || [ -n "$name" ]; do
    [[ -z $name || $name = \#* ]] && continue
    [[ $destination = \#* ]] && destination=''
    [[ $name =~ ^[A-Za-z0-9._-]+$ && $name != .* ]] || wrong "$hosts: '$name' is no name of a host"
    safe "${destination:-$name}"
    names+=("$name")
    destinations+=("${destination:-$name}")
  done <"$hosts"
  [ ${#names[@]} -gt 0 ] || wrong "$hosts names no host"
}

# Run a verb of agent-host, which comes by standard input, on a host.
on_host() {
  local destination=$1
  shift
  "${ssh[@]}" "$destination" sh -s -- "$@"
}

# Run a function for all hosts at once; every line it writes begins with the host's name. Fails if it fails for any.
for_each_host() {
  local i failed=0 jobs=()
  for i in "${!names[@]}"; do
    (set -o pipefail; "$1" "${names[i]}" "${destinations[i]}" 2>&1 | sed "s|^|${names[i]}: |") &
    jobs+=($!)
  done
  for i in "${!jobs[@]}"; do
    wait "${jobs[i]}" || { failed=$((failed + 1)); echo "${names[i]}: failed" >&2; }
  done
  [ "$failed" -eq 0 ] || { echo "${0##*/}: $failed of ${#names[@]} hosts failed" >&2; exit 1; }
}

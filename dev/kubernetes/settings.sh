# Where everything of the cluster is, and what its scripts share. Sourced, never run.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repository=$(cd "$here/../.." && pwd)
version=$(sed -n 's/^\tk8s.io\/kubernetes v//p' "$here/programs/go.mod")
cache=${XDG_CACHE_HOME:-$HOME/.cache}/coregent/kubernetes
program=$cache/$version/kubernetes
# Certificates, data, logs and process ids of the one cluster of this machine.
state=${COREGENT_CLUSTER_DIR:-$cache/cluster}
pki=$state/pki

# Everything has addresses of network namespaces of its own: nothing of it is reachable from the machine, or collides.
plane=coregent-plane
bridge=coregent0
plane_ip=10.210.0.1
api_port=6443
node_ip() { echo "10.210.0.1$1"; }
pod_range() { echo "10.211.$1.0/24"; }
pods=10.211.0.0/16
services=10.212.0.0/16
api_service=10.212.0.1

refuse() { printf '%s: %s\n' "$(basename "$0")" "$1" >&2; exit 2; }
fail() { printf '%s: %s\n' "$(basename "$0")" "$1" >&2; exit 1; }
say() { awk -v from="$began" -v to="$EPOCHREALTIME" -v what="$1" 'BEGIN {printf "%6.1fs  %s\n", to - from, what}'; }

# Only the network namespace changes: `ip netns exec` would hide the control groups as well.
within() { local namespace=$1; shift; nsenter --net="/var/run/netns/$namespace" "$@"; }
kubectl() { within "$plane" "$state/kubectl" --kubeconfig "$pki/admin.kubeconfig" "$@"; }

# When a process began, so that a number that has been given to another process is not taken for it.
born() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }

# start NAME NAMESPACE PROGRAM ARGUMENT… : in the background; its log, its process id and how it is started kept under NAME
start() {
	local name=$1 namespace=$2; shift 2
	mkdir -p "$state/command"
	printf '%s\0' "$namespace" "$@" >"$state/command/$name"
	setsid nsenter --net="/var/run/netns/$namespace" "$@" >>"$state/log/$name.log" 2>&1 </dev/null &
	echo "$! $(born $!)" >"$state/pid/$name"
}

runs() { # NAME
	local pid since
	[ -e "$state/pid/$1" ] && read -r pid since <"$state/pid/$1" && [ "$(born "$pid")" = "$since" ]
}

# until_ready NAME SECONDS COMMAND… : tries the command until it succeeds, for as long as NAME runs
until_ready() {
	local name=$1 tries=$(($2 * 5)); shift 2
	until "$@" >/dev/null 2>&1; do
		runs "$name" || { tail -n 5 "$state/log/$name.log" >&2; fail "$name has ended: $state/log/$name.log"; }
		[ $((tries -= 1)) -gt 0 ] || fail "$name does not answer: $state/log/$name.log"
		sleep 0.2
	done
}

# Services are reached through the kube-proxy of a node whose cable is plugged in.
route_services() {
	local number
	for number in 1 2 3; do
		if within "$plane" ip link show "cg-node$number" up 2>/dev/null | grep -q cg-node; then
			within "$plane" ip route replace "$services" via "$(node_ip "$number")"
			return
		fi
	done
}

package doctor

import (
	"cmp"
	"errors"
	"strings"

	"github.com/rockpool/rockpool/local/sandbox/cgroup"
	"github.com/rockpool/rockpool/local/uids"
	"github.com/rockpool/rockpool/runtime/health"
)

// runnersTrees returns the cgroup trees that contain the runners' groups. Without root, these are
// below a group that was delegated to the user.
func runnersTrees() (cgroup.Hierarchies, error) {
	if uids.Root() {
		return cgroup.Mounted()
	}
	trees, _, err := cgroup.Delegated()
	return trees, err
}

// judgeLacks returns the finding about limits that can't be set without root. err is the cause, or nil.
func (p *subject) judgeLacks(lacks []string, err error) health.Finding {
	const name, advice = "limits", "run only your own programs like this. For untrusted programs, start doctor and the server with systemd-run --user --scope -p Delegate=yes, or as root"
	err = cmp.Or(err, errors.New("these controllers aren't delegated to the control group"))
	if p.accepted {
		return health.Warning(name, advice, "can't be set: %s; the settings accept that: %v", strings.Join(lacks, ", "), err)
	}
	return health.Failure(name, advice, "can't be set: %s; the server won't start without --accept-missing-limits: %v", strings.Join(lacks, ", "), err)
}

// judgeOrdinary judges which users of the machine run the programs of a server without root. The
// uid map that programs see refers to the user namespace of the process that creates runners, in
// which the server's user is 0.
func judgeOrdinary(facts map[string][]string) health.Finding {
	const name = "users"
	uid, users := strings.Join(facts["uid"], ","), strings.Join(facts["map"], ",")
	switch {
	case uid == "1000" && users == "0 1 65536":
		return health.Fine(name, "programs run as their own users, from /etc/subuid")
	case uid == "0" && users == "0 0 1":
		return health.Warning(name, "install uidmap (newuidmap), and give this user 65536 ids in /etc/subuid and /etc/subgid", "programs run as this user; only namespaces separate them from it")
	}
	return health.Failure(name, "report this with the output of rockpool doctor --json", "programs run as %q with the map %q", uid, users)
}

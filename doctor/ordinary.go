package doctor

import (
	"cmp"
	"errors"
	"os"
	"strings"

	"github.com/rockpool/rockpool/local/sandbox/cgroup"
	"github.com/rockpool/rockpool/runtime/finding"
)

// runnersTrees returns the trees in which runners have their groups: an ordinary
// user's are below a group that was made over to it.
func runnersTrees() (cgroup.Hierarchies, error) {
	if os.Geteuid() == 0 {
		return cgroup.Mounted()
	}
	trees, _, err := cgroup.Delegated()
	return trees, err
}

// judgeLacks judges that an ordinary user's runners go without limits, for which
// err may be why.
func (p *patient) judgeLacks(lacks []string, err error) finding.Finding {
	const name, advice = "limits", "only run your own programs so; for others' start this, and the server, with systemd-run --user --scope -p Delegate=yes, or as root"
	err = cmp.Or(err, errors.New("the control group isn't given these controllers"))
	if p.accepted {
		return finding.Warning(name, advice, "none of %s, which the settings accept: %v", strings.Join(lacks, ", "), err)
	}
	return finding.Failure(name, advice, "none of %s can be set, so the server doesn't start without --accept-missing-limits: %v", strings.Join(lacks, ", "), err)
}

// judgeOrdinary judges whom the machine takes an ordinary user's programs for. The
// map that they see is to the user namespace of who makes runners, where the
// server's user is 0.
func judgeOrdinary(facts map[string][]string) finding.Finding {
	const name = "users"
	uid, users := strings.Join(facts["uid"], ","), strings.Join(facts["map"], ",")
	switch {
	case uid == "1000" && users == "0 1 65536":
		return finding.Fine(name, "programs are users that are nobody else, from /etc/subuid")
	case uid == "0" && users == "0 0 1":
		return finding.Warning(name, "install uidmap (newuidmap), and give this user 65536 ids in /etc/subuid and /etc/subgid", "programs are this very user, apart from it by namespaces alone")
	}
	return finding.Failure(name, "report this with the output of rockpool doctor --json", "programs run as %q with the map %q", uid, users)
}

package host

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rockpool/rockpool/local/sandbox/cgroup"
	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/local/sandbox/launch"
	"github.com/rockpool/rockpool/local/sandbox/spec"
)

// rootless is what an ordinary user lacks.
type rootless struct {
	undelegated error    // why it has no control groups
	losses      []string // what its runners don't have, beside limits
}

// installRootless finds out what an ordinary user has for runners: a control group
// that was made over to it, and users beside itself. What it lacks is noted.
func (h *Host) installRootless() {
	trees, base, err := cgroup.Delegated()
	h.rootless.undelegated = err
	users, err := launch.FindSubordinate()
	switch {
	case err != nil:
		h.rootless.losses = append(h.rootless.losses, fmt.Sprintf("programs run as the server's own user, all those of a runner as one, to whom all files of container images belong (%v)", err))
	case users.Count < 2*spec.UIDs:
		h.rootless.losses = append(h.rootless.losses, "all runners have the same users, since /etc/subuid gives this one a single range")
	default:
		h.rootless.losses = append(h.rootless.losses, fmt.Sprintf("of more than %d runners some have the same users, since /etc/subuid gives this one no more ranges, and all that are made from container images, since only root can map their owners", users.Count/spec.UIDs))
	}
	h.Trees = trees
	h.Ranges.Dir = filepath.Join(h.config.Dir, "uids")
	h.Direct.Users = users
	h.Direct.Config.Rootless = &helper.Rootless{Base: base, Users: users.Count}
	if lost := h.Lost(); lost != "" {
		h.config.Logger.Warn(lost)
	}
}

// Ordinary reports whether sandboxes are made without root.
func (h *Host) Ordinary() bool { return h.Direct != nil && h.Direct.Config.Rootless != nil }

// lacking says which limits can't be set, and why; "": all can be.
func (h *Host) lacking() string {
	lacks := h.Trees.Lacks()
	if len(lacks) == 0 {
		return ""
	}
	why := "its control group isn't given these controllers"
	if h.rootless.undelegated != nil {
		why = h.rootless.undelegated.Error()
	}
	return fmt.Sprintf("no limits of %s can be set for runners (%s)", strings.Join(lacks, ", "), why)
}

// Lost says what runners of an ordinary user don't have, in a line; "": nothing.
func (h *Host) Lost() string {
	all := slices.Clone(h.rootless.losses)
	if lacking := h.lacking(); lacking != "" && h.config.MissingLimits {
		all = append([]string{lacking}, all...)
	}
	if len(all) == 0 {
		return ""
	}
	return "without root there is less: " + strings.Join(all, "; ")
}

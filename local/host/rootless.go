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

type rootless struct {
	undelegated error    // why it has no delegated cgroup
	losses      []string // features that its runners lack, besides limits
}

// installRootless inspects what a server without root has for runners: a delegated cgroup and
// subordinate users. It records what is missing.
func (h *Host) installRootless() {
	trees, base, err := cgroup.Delegated()
	h.rootless.undelegated = err
	users, err := launch.FindSubordinate()
	switch {
	case err != nil:
		h.rootless.losses = append(h.rootless.losses, fmt.Sprintf("programs run as the server's own user, all programs of a runner as the same user, who also owns all files: none can be protected (%v)", err))
	case users.Count < 2*spec.UIDs:
		h.rootless.losses = append(h.rootless.losses, "all runners share the same users, because /etc/subuid gives the server's user a single range")
	default:
		h.rootless.losses = append(h.rootless.losses, fmt.Sprintf("with more than %d runners some share the same users, because /etc/subuid gives the server's user no more ranges; all runners made from container images share them, because only root can map their owners", users.Count/spec.UIDs))
	}
	h.Trees = trees
	h.Ranges.Dir, h.Ranges.Size = filepath.Join(h.config.Dir, "uids"), 0 // runners may share ranges
	h.Direct.Users = users
	h.Direct.Config.Rootless = &helper.Rootless{Base: base, Users: users.Count}
	for _, lost := range h.Limitations() {
		h.config.Logger.Warn(lost)
	}
}

// Rootless reports whether this server makes sandboxes without root.
func (h *Host) Rootless() bool { return h.Direct != nil && h.Direct.Config.Rootless != nil }

// lacking describes the limits that can't be set, and why; "" means that all can be set.
func (h *Host) lacking() string {
	lacks := h.Trees.Lacks()
	if len(lacks) == 0 {
		return ""
	}
	why := "these controllers aren't delegated to its cgroup"
	if h.rootless.undelegated != nil {
		why = h.rootless.undelegated.Error()
	}
	return fmt.Sprintf("limits of %s can't be set for runners (%s)", strings.Join(lacks, ", "), why)
}

// Limitations describes in one line which features runners lack because the server isn't root, and in another
// what their programs inherit from the starter of the server.
func (h *Host) Limitations() []string {
	all := slices.Clone(h.rootless.losses)
	if lacking := h.lacking(); lacking != "" && h.config.MissingLimits {
		all = append([]string{lacking}, all...)
	}
	if len(all) > 0 {
		all = []string{"without root, runners have less isolation: " + strings.Join(all, "; ")}
	}
	if h.inherited != "" {
		all = append(all, h.inherited)
	}
	return all
}

package local

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

// installRootless finds out what an ordinary user has for runners: a control group
// that was made over to it, and users beside itself. What it lacks is noted.
func (c *Cluster) installRootless() {
	trees, base, err := cgroup.Delegated()
	c.undelegated = err
	users, err := launch.FindSubordinate()
	switch {
	case err != nil:
		c.losses = append(c.losses, fmt.Sprintf("programs run as the server's own user, all those of a runner as one, to whom all files of container images belong (%v)", err))
	case users.Count < 2*spec.UIDs:
		c.losses = append(c.losses, "all runners have the same users, since /etc/subuid gives this one a single range")
	default:
		c.losses = append(c.losses, fmt.Sprintf("of more than %d runners some have the same users, since /etc/subuid gives this one no more ranges, and all that are made from container images, since only root can map their owners", users.Count/spec.UIDs))
	}
	c.trees = trees
	c.ranges.Dir = filepath.Join(c.config.Dir, "uids")
	c.direct.Users = users
	c.direct.Config.Rootless = &helper.Rootless{Base: base, Users: users.Count}
	if lost := c.Lost(); lost != "" {
		c.log.Warn(lost)
	}
}

// ordinary reports whether sandboxes are made without root.
func (c *Cluster) ordinary() bool { return c.direct != nil && c.direct.Config.Rootless != nil }

// lacking says which limits can't be set, and why; "": all can be.
func (c *Cluster) lacking() string {
	lacks := c.trees.Lacks()
	if len(lacks) == 0 {
		return ""
	}
	why := "its control group isn't given these controllers"
	if c.undelegated != nil {
		why = c.undelegated.Error()
	}
	return fmt.Sprintf("no limits of %s can be set for runners (%s)", strings.Join(lacks, ", "), why)
}

// Lost says what runners of an ordinary user don't have, in a line; "": nothing.
func (c *Cluster) Lost() string {
	all := slices.Clone(c.losses)
	if lacking := c.lacking(); lacking != "" && c.config.MissingLimits {
		all = append([]string{lacking}, all...)
	}
	if len(all) == 0 {
		return ""
	}
	return "without root there is less: " + strings.Join(all, "; ")
}

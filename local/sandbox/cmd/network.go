package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/network"
	"github.com/rockpool/rockpool/local/network/fence"
	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/local/sandbox/spec"
)

// resolverMount is where the file is mounted, in the helper's own mount namespace
// only, that says which name server a sandbox with a network asks: the sandbox's
// root often can't come to where it is.
const resolverMount = "/run/rockpool/resolv.conf"

// A link is what a sandbox has of the network; nil: nothing.
type link struct{ policy network.Policy }

// linkOf returns what was asked for, as far as it is offered.
func linkOf(c helper.Config, q *helper.Request) (*link, error) {
	if q.Network == nil {
		return nil, nil
	}
	policy, err := c.Policy(q)
	if err != nil {
		return nil, finalError{fmt.Errorf("the network: %w", err)}
	}
	return &link{policy}, nil
}

// resolver is the file that the sandbox has as its /etc/resolv.conf; "": an empty
// one.
func (l *link) resolver() string {
	if l == nil {
		return ""
	}
	return resolverMount
}

// mountResolver mounts that file, once this helper has mounts of its own.
func (l *link) mountResolver(c helper.Config) error {
	if l == nil {
		return nil
	}
	at, err := os.OpenFile(resolverMount, os.O_CREATE|os.O_WRONLY|unix.O_NOFOLLOW, 0o644)
	if err != nil {
		return err
	}
	_ = at.Close()
	if err := unix.Mount(filepath.Join(c.Root, spec.ResolverPath), resolverMount, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount the name server's address: %w", err)
	}
	return nil
}

// make links the network namespace of a process, in which nothing of a user's
// runs yet.
func (l *link) make(c helper.Config, q *helper.Request, pid int) error {
	if l == nil {
		return nil
	}
	err := fence.Make(c.Group(q.ID), pid, l.policy)
	if err != nil {
		err = fmt.Errorf("the network: %w", err)
	}
	if err != nil && !errors.Is(err, fence.ErrUnread) {
		return finalError{err}
	}
	return err
}

// tell says where the sandbox is reached.
func (l *link) tell(q *helper.Request, answer *helper.Answer) (err error) {
	if l != nil {
		answer.Address, _, err = l.policy.Pool.Addresses(q.Slot)
	}
	return err
}

// networkOf does what there is to do with a sandbox's network while it lives.
func networkOf(c helper.Config, q *helper.Request) error {
	if q.Command == helper.Lease {
		return fence.Lease(c.Group(q.ID), *q.Lease)
	}
	policy, err := c.Policy(q)
	if err != nil { // such a network isn't offered any more
		return finalError{err}
	}
	return fence.Verify(c.Group(q.ID), policy)
}

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/network"
	"github.com/rockpool/rockpool/local/network/firewall"
	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/local/sandbox/spec"
)

// resolverMount is where a sandbox's /etc/resolv.conf is mounted, in the helper's mount namespace
// only: the sandbox's root user often can't reach its original place.
const resolverMount = "/run/rockpool/resolv.conf"

// A link is a sandbox's network, nil if there is none.
type link struct{ policy network.Policy }

// linkOf returns the requested network, checked against what is offered.
func linkOf(c helper.Config, q *helper.Request) (*link, error) {
	if q.Network == nil {
		return nil, nil
	}
	policy, err := c.Policy(q)
	if err != nil {
		return nil, finalError{fmt.Errorf("check the network: %w", err)}
	}
	return &link{policy}, nil
}

// resolver returns the file to mount as /etc/resolv.conf, "" for an empty one.
func (l *link) resolver() string {
	if l == nil {
		return ""
	}
	return resolverMount
}

// mountResolver mounts that file. The helper must have its own mount namespace.
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
		return fmt.Errorf("mount resolv.conf: %w", err)
	}
	return nil
}

// make sets up the network namespace of a process that doesn't run a user's program yet.
func (l *link) make(c helper.Config, q *helper.Request, pid int) error {
	if l == nil {
		return nil
	}
	err := firewall.Make(c.Group(q.ID), pid, l.policy)
	if err != nil {
		err = fmt.Errorf("set up the network: %w", err)
	}
	if err != nil && !errors.Is(err, firewall.ErrUnread) {
		return finalError{err}
	}
	return err
}

func (l *link) setAddress(q *helper.Request, answer *helper.Answer) (err error) {
	if l != nil {
		answer.Address, _, err = l.policy.Pool.Addresses(q.Slot)
	}
	return err
}

// networkOf serves Lease and Verify, on a live sandbox.
func networkOf(c helper.Config, q *helper.Request) error {
	if q.Command == helper.Lease {
		return firewall.Lease(c.Group(q.ID), *q.Lease)
	}
	policy, err := c.Policy(q)
	if err != nil { // the settings no longer offer this network
		return finalError{err}
	}
	return firewall.Verify(c.Group(q.ID), policy)
}
